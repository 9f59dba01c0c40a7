"""Does what docs/tutorial.md says, in a new folder, and prints the seconds of each block. It installs a wheel.

It needs only Python's standard library, and a wheel of cuaug. The shell blocks run in their order, then the Python
blocks as one program; `make try-tutorial` makes the wheel and runs it. To try it on a machine with nothing but Python:

    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm debian
    python3 tests/tools/try_tutorial.py --root debian
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A fenced block, its language, and whether the comment that says why it does not run is above it.
BLOCK = re.compile(r"^(<!-- not run: [^\n]*-->\n+)?```(python|bash)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def programs(page: str) -> tuple[str, str]:
    """A bash script and a Python program that print the seconds of each of their blocks."""
    shell = ["set -euo pipefail", "export TIMEFORMAT='-- %1R s'"]
    python = ["import time as _time"]
    for marked, language, code in BLOCK.findall(page):
        if marked:
            continue
        if language == "bash":
            for line in code.replace("pip install .  #", "pip install dist/*.whl  #").splitlines():
                shell += [f"echo {shlex.quote('$ ' + line)}", f"time {line}"]
        else:
            python += ["_start = _time.perf_counter()", code]
            python += ["print(f'-- {_time.perf_counter() - _start:.1f} s', flush=True)"]
    return "\n".join([*shell, "time python tutorial.py", ""]), "\n".join(python)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist", help="the folder of cuaug's wheel: dist")
    parser.add_argument("--root", type=Path, help="run in this root file system, by chroot; needs to be root")
    options = parser.parse_args()
    wheels = sorted(options.wheels.glob("cuaug-*_x86_64.whl"))
    if len(wheels) != 1:
        parser.error(
            f"{options.wheels} must hold one wheel of cuaug for x86_64, not {[wheel.name for wheel in wheels]}"
        )
    shell, python = programs((ROOT / "docs" / "tutorial.md").read_text())
    root = options.root or Path("/")
    with tempfile.TemporaryDirectory(prefix="tutorial-", dir=root / "tmp") as name:
        folder = Path(name)
        (folder / "dist").mkdir()
        shutil.copy(wheels[0], folder / "dist")
        (folder / "tutorial.sh").write_text(shell)
        (folder / "tutorial.py").write_text(python)
        inside = "/" / folder.relative_to(root)
        command = ["bash", "-c", f"cd {shlex.quote(str(inside))} && exec bash tutorial.sh"]
        start = time.perf_counter()
        status = subprocess.run(["chroot", str(root), *command] if options.root else command).returncode
        print(f"exit status {status}, {time.perf_counter() - start:.0f} s in total")
    return status


if __name__ == "__main__":
    sys.exit(main())
