"""Helpers of all benchmarks: pinning to processors, medians with their spread, and files of results."""

import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "tests/differential"))

RESULTS = ROOT / "bench/results"


def pin(count=2):
    """Pins this process and its children to `count` processors. Returns the number of processors that they have."""
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(available[:count]))
    return len(available[:count])


def machine(threads):
    model, memory, instructions = platform.processor(), 0, set()
    for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
        if line.startswith("flags"):
            instructions = set(line.split(":", 1)[1].split())
            break
    # Instruction sets that decide which kernels run.
    names = {"AVX-512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi", "avx512_vbmi2"}, "AVX2": {"avx2"}}
    vectors = next((name for name, needed in names.items() if needed <= instructions), "neither AVX2 nor AVX-512")
    for line in pathlib.Path("/proc/meminfo").read_text().split("\n"):
        if line.startswith("MemTotal"):
            memory = int(line.split()[1]) // 1024 // 1024
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {
        "processor": f"{model} with {vectors}",
        "threads": threads,
        "memory_gib": memory,
        "system": f"{platform.system()} {platform.release()}",
        "commit": commit.stdout.strip(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def median(values):
    return statistics.median(values)


def spread(values):
    """Returns half the range (maximum minus minimum) as a share of the median."""
    return (max(values) - min(values)) / 2 / median(values) if median(values) else 0.0


def resident():
    """Returns the resident memory of this process in bytes."""
    return status("VmRSS")


def peak():
    """Returns the peak resident memory of this process since the last call, in bytes."""
    found = status("VmHWM")
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return found


def status(field):
    for line in pathlib.Path("/proc/self/status").read_text().split("\n"):
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g}" if seconds < 0.1 else f"{seconds * 1e3:.0f}"


def table(head, rows):
    """Formats a Markdown table. The first column is text, the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] + ["--:"] * (len(head) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def keep(name, facts, text):
    """Writes bench/results/NAME.json and NAME.md, and prints the Markdown."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(text + "\n")
    print(text)
    print(f"\nkept in bench/results/{name}.md and {name}.json", file=sys.stderr)
