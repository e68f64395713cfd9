"""Checks the structure of the workspace: the dependencies that ARCHITECTURE.md draws, rules of the sources, links."""

import ast
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Each crate, and the crates of the workspace that it may depend on. Dependencies point down.
ALLOWED = {
    "taut-allocator": [],
    "taut-types": [],
    "taut-encoding": ["taut-types"],
    "taut-index": ["taut-types"],
    "taut-block": ["taut-types", "taut-encoding", "taut-index"],
    "taut-store": ["taut-types", "taut-block"],
    "taut-sql": ["taut-types", "taut-store"],
    "taut-query": ["taut-types", "taut-block", "taut-store", "taut-sql"],
    "taut": ["taut-store", "taut-query"],
    "taut-cli": ["taut-types", "taut-store", "taut", "taut-allocator"],
    "taut-python": ["taut", "taut-allocator"],
    "taut-testkit": ["taut-types"],
    "taut-tests": ["taut", "taut-store"],
    "taut-tpch-generator": [],
}
# Crates that compile without DataFusion, dependencies included.
STORAGE = ["taut-types", "taut-encoding", "taut-index", "taut-block", "taut-store", "taut-testkit"]
# The folders of crates/query, from the bottom up. A folder imports only folders before it.
FOLDERS_OF_QUERY = ["error", "runtime", "expressions", "constraints", "write", "exec", "plan", "mover", "session"]
# Type names that a crate may declare more than once: associated types of traits, and one type per processor or system.
REPEATED = ["Break", "Err", "Error", "Item", "Output", "Result", "Source", "Mask", "BitPositions", "Register", "Thread"]
# The parts of DataFusion that these crates name. Crates that are not here may name all of it.
ENGINE = {**dict.fromkeys(STORAGE, []), "taut-sql": ["datafusion-common", "datafusion-sql"]}
# Crates that benchmarks may use in addition to the dependencies of their crate.
OF_BENCHMARKS = ["taut-allocator"]
# Width of comments, and of documents and SQL tests, as in .editorconfig.
LINE_MAX = 120
LINE_MAX_WIDE = 130
# Endings of files whose comments, docstrings and prose have these widths. Files without an ending are the Makefile and
# scripts.
TEXT = ["", ".md", ".py", ".pyi", ".rs", ".slt", ".toml", ".txt", ".yml"]
# Files that programs write.
GENERATED = re.compile(r"bench/results/(?!README)|.*/proptest-regressions/")
# Crates for tests alone.
DEVELOPMENT_ONLY = ["taut-testkit"]
# Crates that never open a file. Only the store opens the files of a database.
WITHOUT_FILES = ["types", "encoding", "index", "block"]
# The only folders with `unsafe`: vector instructions, and a call of the allocator.
UNSAFE = ("crates/encoding/src/kernels", "crates/allocator/src")


def metadata():
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def directions(facts, wrong):
    """Compares direct dependencies with those that are allowed."""
    members = {package["name"]: package for package in facts["packages"] if package["id"] in facts["workspace_members"]}
    for name in sorted(set(members) ^ set(ALLOWED)):
        wrong.append(f"{name} is {'not in ALLOWED of tests/structure.py' if name in members else 'not in the workspace'}")
    for name, package in members.items():
        for dependency in package["dependencies"]:
            other, kind = dependency["name"], dependency["kind"]
            if other in ALLOWED and other not in ALLOWED.get(name, []):
                if not (kind == "dev" and other in DEVELOPMENT_ONLY + OF_BENCHMARKS):
                    wrong.append(f"{name} depends on {other}, which ALLOWED in tests/structure.py does not list")
            if other in DEVELOPMENT_ONLY and kind != "dev":
                wrong.append(f"{name} depends on {other} beyond its tests")
            if other.startswith("datafusion") and other not in ENGINE.get(name, [other]):
                wrong.append(f"{name} depends on {other}, which ENGINE in tests/structure.py does not list")


def without_datafusion(facts, wrong):
    """Reports DataFusion among the dependencies of the storage crates and of their tests."""
    names = {package["id"]: package["name"] for package in facts["packages"]}
    nodes = {node["id"]: node for node in facts["resolve"]["nodes"]}
    for crate in STORAGE:
        start = next(package["id"] for package in facts["packages"] if package["name"] == crate)
        seen, stack = set(), [start]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            for dependency in nodes[node]["deps"]:
                # The tests of the crate itself count; those of its dependencies are not built.
                if node == start or any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                    stack.append(dependency["pkg"])
        for found in sorted(names[node] for node in seen if names[node].startswith("datafusion")):
            wrong.append(f"{crate} is built with {found}")


def features(*selection):
    """Returns the features of each library that a selection of packages is built with."""
    command = ["cargo", "tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}|{f}", *selection]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    found = {}
    for line in lines:
        package, _, enabled = line.replace(" (*)", "").partition("|")
        if enabled:
            found.setdefault(package.removesuffix(" (proc-macro)"), set()).update(enabled.split(","))
    return found


def compiled_once(wrong):
    """Checks that the Python package, which is built alone, uses the features of the whole workspace. Otherwise every
    library would be compiled twice."""
    alone, together = features("--package", "taut-python"), features("--workspace")
    for package in sorted(set(alone) & set(together)):
        for feature in sorted(together[package] - alone[package]):
            wrong.append(f"bindings/python/Cargo.toml: {package} lacks the feature {feature!r}, which the workspace has")


def sources(wrong):
    """Checks the text of the sources: heads of files, files that are opened, unsafe code."""
    for path in sorted([*(ROOT / "crates").rglob("*.rs"), *(ROOT / "bindings").rglob("*.rs")]):
        place, text = path.relative_to(ROOT), path.read_text()
        crate = place.parts[1]
        code = re.sub(r"//.*", "", text)
        if place.parts[2] == "src" and not text.startswith("//!"):
            if not text.startswith(("#!", "mod ")):
                wrong.append(f"{place} does not open with a //! comment that says what it is for")
        if place.parts[2] == "src" and crate in WITHOUT_FILES and re.search(r"\bstd::fs\b|\bFile::(open|create)\b", code):
            wrong.append(f"{place} opens files; only the store and the crates above it do")
        if re.search(r"\bunsafe\s*(\{|fn|impl)", code) and not str(place).startswith(UNSAFE):
            wrong.append(f"{place} has unsafe code, which is allowed in {', '.join(UNSAFE)}")


def imports(src):
    """Returns the modules at the top of a crate, each with the other ones that it imports. Tests do not count."""
    modules = {}
    for path in src.rglob("*.rs"):
        name = list(path.relative_to(src).with_suffix("").parts)
        modules[tuple(name[:-1] if name[-1] in ("mod", "lib", "main") else name)] = path
    found = {}
    for name, path in modules.items():
        if not name or "tests" in name:
            continue
        code = re.sub(r"//.*", "", path.read_text()).split("\n#[cfg(test)]\nmod")[0]
        for start, rest in re.findall(r"\b(crate|super(?:::super)*)::((?:[a-z_0-9]+::)*[a-z_0-9]+)", code):
            above = name[: len(name) - start.count("super")] if start != "crate" else ()
            other = (*above, *rest.split("::"))
            if other[:1] != name[:1] and (other[:1] in modules or any(module[:1] == other[:1] for module in modules)):
                found.setdefault(name[0], set()).add(other[0])
    return found


def type_names(wrong):
    """Checks that a search for a type of a crate finds one type."""
    declaration = re.compile(r"^\s*(?:pub(?:\([a-z]+\))? )?(?:struct|enum|trait|type|union) ([A-Z]\w*)", re.MULTILINE)
    for src in sorted([*(ROOT / "crates").glob("*/src"), *(ROOT / "bindings").glob("*/src")]):
        found = {}
        for path in sorted(src.rglob("*.rs")):
            if not any("tests" in part for part in path.relative_to(src).parts):
                for name in declaration.findall(path.read_text().split("\n#[cfg(test)]\nmod")[0]):
                    found.setdefault(name, []).append(str(path.relative_to(src)))
        for name, files in found.items():
            if len(files) > 1 and name not in REPEATED:
                wrong.append(f"{src.relative_to(ROOT)}: {' and '.join(files)} each declare a type {name}")


def reaches(graph, start):
    seen, stack = set(), [start]
    while stack:
        for other in graph.get(stack.pop(), ()):
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return seen


def folders(wrong):
    """Checks that the modules at the top of a crate import each other in one direction."""
    for src in sorted([*(ROOT / "crates").glob("*/src"), *(ROOT / "bindings").glob("*/src")]):
        graph = imports(src)
        for module in sorted(graph):
            if module in reaches(graph, module):
                wrong.append(f"{src.relative_to(ROOT)}: {module} imports modules that import it")
    order = {name: number for number, name in enumerate(FOLDERS_OF_QUERY)}
    for module, others in imports(ROOT / "crates/query/src").items():
        # It maps the errors of all folders to SQLSTATEs, so it may import all of them.
        if module == "sqlstate":
            continue
        for other in sorted(others):
            if order.get(module, 0) <= order.get(other, 0):
                wrong.append(f"crates/query/src: {module} imports {other}, which FOLDERS_OF_QUERY in tests/structure.py does not allow")


def written_lines(path):
    """Returns the numbers of lines with comments, docstrings, or prose outside of tables and blocks of code."""
    text = path.read_text()
    if path.suffix == ".md":
        text = re.sub(r"^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
        return {number for number, line in enumerate(text.splitlines(), 1) if line and not line.lstrip().startswith("|")}
    marker = "//" if path.suffix == ".rs" else "#"
    numbers = {number for number, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith(marker)}
    if path.suffix in (".py", ".pyi"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                numbers.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return numbers


def line_widths(wrong):
    """Checks the width of comments, docstrings and prose."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        path = ROOT / name
        if not path.exists() or path.suffix not in TEXT or GENERATED.match(name):
            continue
        allowed = LINE_MAX_WIDE if path.suffix in (".md", ".slt") else LINE_MAX
        lines = path.read_text().splitlines()
        for number in sorted(written_lines(path)):
            if len(lines[number - 1]) > allowed:
                wrong.append(f"{name}:{number}: {len(lines[number - 1])} characters, {allowed} are allowed")


def links(wrong):
    """Checks that every relative link of a document leads to a file."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        path = ROOT / name
        if not path.exists():
            continue
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            target = target.partition("#")[0]
            if target and "://" not in target and not (path.parent / target).exists():
                wrong.append(f"{name} links to {target}, which does not exist")


def main():
    wrong = []
    facts = metadata()
    directions(facts, wrong)
    without_datafusion(facts, wrong)
    compiled_once(wrong)
    sources(wrong)
    folders(wrong)
    type_names(wrong)
    links(wrong)
    line_widths(wrong)
    print("\n".join(wrong) or f"{len(ALLOWED)} crates have the structure that ARCHITECTURE.md draws")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
