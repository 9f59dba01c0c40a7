"""Runs the notebooks of examples/notebooks, each in a new kernel and an empty folder.

python tests/tools/notebooks.py            # fails with the first error of a cell
python tests/tools/notebooks.py --write    # and stores the outputs, with pictures as JPEGs
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"


def strip(notebook: Any) -> None:
    """Keeps one picture of each output, and nothing that changes from run to run."""
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            if "image/jpeg" in output.get("data", {}):
                output.data = {"image/jpeg": output.data["image/jpeg"]}
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="store the outputs in the notebooks")
    parser.add_argument("names", nargs="*", help="file names; all without any")
    options = parser.parse_args()
    os.environ["CUAUG_DEVICE"] = "cpu"  # the figures and texts are those of a CPU
    for path in sorted(FOLDER.glob("*.ipynb")):
        if options.names and path.name not in options.names:
            continue
        start = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}})
            try:
                client.execute()
            except CellExecutionError as error:
                print(f"{path.name}: {error}")
                return 1
        print(f"{path.name}: {time.perf_counter() - start:.0f} s", flush=True)
        if options.write:
            strip(notebook)
            nbformat.write(notebook, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
