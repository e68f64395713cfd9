"""The law of the rooms: who may depend on whom, as ARCHITECTURE.md draws it, against `cargo metadata` and the sources."""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# A room, and the rooms that it may name. Dependencies point down.
LAW = {
    "taut-allocator": [],
    "taut-types": [],
    "taut-encoding": ["taut-types"],
    "taut-index": ["taut-types"],
    "taut-block": ["taut-types", "taut-encoding", "taut-index"],
    "taut-store": ["taut-types", "taut-block"],
    "taut-query": ["taut-types", "taut-block", "taut-store"],
    "taut": ["taut-types", "taut-block", "taut-store", "taut-query"],
    "taut-cli": ["taut-types", "taut-store", "taut", "taut-allocator"],
    "taut-python": ["taut", "taut-allocator"],
    "taut-testkit": ["taut-types"],
    "taut-tests": ["taut", "taut-store"],
    "taut-tpch-generator": [],
}
# Rooms that compile without DataFusion, whatever they depend on.
STORAGE = ["taut-types", "taut-encoding", "taut-index", "taut-block", "taut-store", "taut-testkit"]
# What examples, which are measurements, may use beside what their room does.
OF_EXAMPLES = ["taut-allocator"]
# Made for tests alone.
DEVELOPMENT_ONLY = ["taut-testkit"]
# Rooms that never open a file: below the store, which alone opens those of a database.
WITHOUT_FILES = ["types", "encoding", "index", "block"]
# The only places for `unsafe`: instructions, and a call of the allocator.
UNSAFE = ("crates/encoding/src/kernels", "crates/allocator/src")


def metadata():
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def directions(facts, wrong):
    """Direct dependencies against the law."""
    members = {package["name"]: package for package in facts["packages"] if package["id"] in facts["workspace_members"]}
    for name in sorted(set(members) ^ set(LAW)):
        wrong.append(f"{name} is {'no room of the law' if name in members else 'not in the workspace'}: see LAW in tests/rooms.py")
    for name, package in members.items():
        for dependency in package["dependencies"]:
            other, kind = dependency["name"], dependency["kind"]
            if other in LAW and other not in LAW.get(name, []):
                if not (kind == "dev" and other in DEVELOPMENT_ONLY + OF_EXAMPLES):
                    wrong.append(f"{name} depends on {other}, which the law does not allow")
            if other in DEVELOPMENT_ONLY and kind != "dev":
                wrong.append(f"{name} depends on {other} beyond its tests")
            if name in STORAGE and other.startswith("datafusion"):
                wrong.append(f"{name} names {other}: storage does not know DataFusion")


def without_datafusion(facts, wrong):
    """Everything that the storage rooms are built and tested with."""
    names = {package["id"]: package["name"] for package in facts["packages"]}
    nodes = {node["id"]: node for node in facts["resolve"]["nodes"]}
    for room in STORAGE:
        start = next(package["id"] for package in facts["packages"] if package["name"] == room)
        seen, stack = set(), [start]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            for dependency in nodes[node]["deps"]:
                # The tests of the room itself count, those of its dependencies are not built.
                if node == start or any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                    stack.append(dependency["pkg"])
        for found in sorted(names[node] for node in seen if names[node].startswith("datafusion")):
            wrong.append(f"{room} is built with {found}")


def features(*selection):
    """The features of each library that a selection of packages is built with."""
    command = ["cargo", "tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}|{f}", *selection]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    found = {}
    for line in lines:
        package, _, enabled = line.replace(" (*)", "").partition("|")
        if enabled:
            found.setdefault(package.removesuffix(" (proc-macro)"), set()).update(enabled.split(","))
    return found


def compiled_once(wrong):
    """The Python package is built by itself, with the features that everything together has: else every library is
    compiled once more."""
    alone, together = features("--package", "taut-python"), features("--workspace")
    for package in sorted(set(alone) & set(together)):
        for feature in sorted(together[package] - alone[package]):
            wrong.append(f"bindings/python/Cargo.toml: {package} lacks the feature {feature!r}, which the workspace has")


def sources(wrong):
    """What the text of the sources must and must not say."""
    for path in sorted([*(ROOT / "crates").rglob("*.rs"), *(ROOT / "bindings").rglob("*.rs")]):
        place, text = path.relative_to(ROOT), path.read_text()
        room = place.parts[1]
        code = re.sub(r"//.*", "", text)
        if place.parts[2] == "src" and not text.startswith("//!"):
            if not text.startswith(("#!", "mod ")):
                wrong.append(f"{place} does not open with a //! comment that says what it is for")
        if place.parts[2] == "src" and room in WITHOUT_FILES and re.search(r"\bstd::fs\b|\bFile::(open|create)\b", code):
            wrong.append(f"{place} opens files, which below the store nobody does")
        if re.search(r"\bunsafe\s*(\{|fn|impl)", code) and not str(place).startswith(UNSAFE):
            wrong.append(f"{place} has unsafe code; its rooms are {', '.join(UNSAFE)}")


def main():
    wrong = []
    facts = metadata()
    directions(facts, wrong)
    without_datafusion(facts, wrong)
    compiled_once(wrong)
    sources(wrong)
    print("\n".join(wrong) or f"{len(LAW)} rooms keep the law")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
