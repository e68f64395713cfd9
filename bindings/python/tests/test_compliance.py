"""Runs SQLAlchemy's own suite for dialects."""

import pathlib
import re
import runpy
import subprocess
import sys

import sqlalchemy
from sqlalchemy.testing import exclusions

SUITE = pathlib.Path(__file__).resolve().parent / "compliance"
#: Minimum number of tests that pass. A requirement closed by mistake would skip many tests.
PASSED_MIN = 850


def test_sqlalchemys_suite_passes(tmp_path):
    # One thread, because some of its tests expect the rows of a window function in order.
    url = f"taut:///{tmp_path}/suite.taut?threads=1"
    # A separate process, because SQLAlchemy's plugin for pytest changes how tests are collected.
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--dburi", url], cwd=SUITE, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
    (passed,) = re.findall(r"(\d+) passed", ended.stdout)
    assert int(passed) >= PASSED_MIN, f"{passed} tests passed, with SQLAlchemy {sqlalchemy.__version__}"


def test_every_closed_requirement_has_a_reason():
    declared = runpy.run_path(str(SUITE / "requirements.py"))
    assert not set(declared["OPEN"]) & set(declared["CLOSED"])
    requirements, unexplained = declared["Requirements"](), []
    for name in dir(declared["SuiteRequirements"]):
        rule = getattr(requirements, name) if isinstance(getattr(declared["SuiteRequirements"], name), property) else None
        # SQLAlchemy's description of requirements that it closes by default.
        if isinstance(rule, exclusions.compound) and any(skip.description == "marked as skip" for skip in rule.skips):
            unexplained.append(name)
    assert unexplained == []
    known = dir(declared["SuiteRequirements"])
    assert [name for name in (*declared["OPEN"], *declared["CLOSED"]) if name not in known] == []
