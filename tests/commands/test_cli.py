"""`cuaug` alone, `cuaug completion` and `cuaug demo`."""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from cuaug.commands import demo
from cuaug.commands.cli import main
from cuaug.commands.parser import make_parser


def commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = (action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return action.choices


def test_the_overview_shows_each_command_with_an_example(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main([]) == 0
    shown = capsys.readouterr().out.splitlines()
    starts = [i for i, line in enumerate(shown) if re.match(r"  \w", line)]
    assert [shown[i].split()[0] for i in starts] == [*commands()]
    for name in commands():
        (example,) = (line for line in shown if line.strip().startswith(f"cuaug {name}"))
        words = shlex.split(example.partition(" > ")[0])
        assert make_parser().parse_args(words[1:]).command == name
    assert not [line for line in shown if len(line) > 60 and not line.startswith(" " * 14 + "cuaug ")]


@pytest.mark.parametrize("name", commands())
def test_help_of_a_command_ends_with_its_example(name, capsys):
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert f"example: cuaug {name}" in capsys.readouterr().out


# How an interactive shell starts without a user's settings, and how it loads the script.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source ./_cuaug"),
    "zsh": (["zsh", "-f", "-i"], "fpath=($PWD $fpath); autoload -U compinit; compinit -u -D"),
}


class Terminal:
    """A shell in a terminal of its own, which loads the completion script."""

    def __init__(self, shell: str, folder: Path) -> None:
        self.fd, terminal = pty.openpty()
        start, load = SHELLS[shell]
        environment = os.environ | {"TERM": "dumb", "HOME": str(folder), "PS1": "$ "}
        streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
        self.process = subprocess.Popen(start, cwd=folder, env=environment, start_new_session=True, **streams)
        os.close(terminal)
        self.type(f"{load}; echo loaded-$((1 + 1))\n", "loaded-2")

    def type(self, text: str, expected: str) -> None:
        """Types, and waits until the terminal shows something."""
        os.write(self.fd, text.encode())
        shown = ""
        while expected not in shown:
            assert select.select([self.fd], [], [], 60)[0], f"{expected!r} is not in {shown!r}"
            shown += os.read(self.fd, 4096).decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_tab_key_completes(shell, tmp_path, capsys):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    assert main(["completion", shell]) == 0
    (tmp_path / "_cuaug").write_text(capsys.readouterr().out)
    (tmp_path / "photo.jpg").touch()
    terminal = Terminal(shell, tmp_path)
    try:
        for typed, expected in {
            "cuaug prof\t": "cuaug profile ",
            "cuaug profile --trac\t": "--trace ",
            "cuaug check ph\t": "photo.jpg ",
        }.items():
            terminal.type(typed, expected)
            terminal.type("\x15echo next-$((1 + 1))\n", "next-2")  # Control-U empties the line
    finally:
        terminal.close()


def test_fish_completes(tmp_path, capsys):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    assert main(["completion", "fish"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "photo.jpg").touch()
    for line, expected in {"cuaug pr": {"preview", "profile", "prepare"}, "cuaug check ph": {"photo.jpg"}}.items():
        run = ["fish", "-c", f'source script; complete -C "{line}"']
        found = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert {row.partition("\t")[0] for row in found.splitlines()} == expected


def test_completion_without_shtab(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cuaug completion needs shtab") and line.endswith('pip install "cuaug[completion]"')


@pytest.mark.slow
def test_the_demo_draws_shapes_and_learns_them(tmp_path, monkeypatch, capsys):
    """Smaller than a user's, so less is learned; chance is 25 %."""
    monkeypatch.setattr(demo, "_COUNT", 320)
    monkeypatch.setattr(demo, "_EPOCHS", 4)
    threads = torch.get_num_threads()
    output = tmp_path / "batch.png"
    try:
        assert main(["demo", "--device", "cpu", "-o", str(output)]) == 0
    finally:
        torch.set_num_threads(threads)
    out = capsys.readouterr().out
    shares = [float(share) for share in re.findall(r"([\d.]+)% correct", out)]
    assert len(shares) == 4 and max(shares) > 40
    assert "320 JPEGs of 4 shapes" in out and "bottleneck" in out
    with Image.open(output) as picture:
        assert picture.width > 500


def test_shapes_are_in_folders_of_their_classes_and_always_the_same(tmp_path):
    for name in "ab":
        demo.write_shapes(tmp_path / name, 9, seed=3)
    files = sorted(path.relative_to(tmp_path / "a") for path in tmp_path.glob("a/*/*.jpg"))
    assert [path.parent.name for path in files] == ["circle"] * 3 + ["square"] * 2 + ["star"] * 2 + ["triangle"] * 2
    assert all((tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes() for path in files)


def test_the_demo_writes_its_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "_COUNT", 16)
    folder = tmp_path / "shapes"
    assert main(["demo", "--pictures", str(folder)]) == 0
    assert len(list(folder.glob("train/*/*.jpg"))) == 16 and len(list(folder.glob("validation/*/*.jpg"))) == 4
    assert capsys.readouterr().out.startswith("16 JPEGs of 4 shapes")
    assert main(["demo", "--pictures", str(folder)]) == 1
    assert "exists" in capsys.readouterr().err, "pictures of a user are not overwritten"


@pytest.mark.parametrize(
    "arguments, says", [(["-o", "no/such/folder.png"], "no/such/folder.png"), (["--device", "gpu"], "gpu")]
)
def test_errors_of_the_demo_are_one_line(arguments, says, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "_COUNT", 40)
    assert main(["demo", "--device", "cpu", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cuaug demo: ") and says in line
