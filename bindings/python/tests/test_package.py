"""Tests that the type annotations of the package are complete, and that its notebook runs."""

import pathlib
import subprocess
import sys

import nbclient
import nbformat

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_type_annotations_are_complete(tmp_path):
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--package", "taut"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    native = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "--ignore-disjoint-bases", "taut._taut"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert native.returncode == 0, native.stdout


def test_the_tutorial_runs(tmp_path):
    notebook = nbformat.read(ROOT / "tutorial.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("<svg" in output.get("data", {}).get("text/html", "") for output in shown)
