"""The programs of examples/: each one runs; callers of inference.py get the rows of their own images."""

from __future__ import annotations

import re
import runpy
import sys
import threading
from pathlib import Path

import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from tests.support.codec.encoded_images import encode

EXAMPLES = Path(__file__).parents[2] / "examples"
PORTS = sorted(path.stem for path in (EXAMPLES / "ports").glob("*.py") if path.stem != "pictures")


@pytest.mark.parametrize("name", PORTS)
def test_ports(name, monkeypatch, capsys):
    """They check their own results."""
    assert len(PORTS) >= 9
    monkeypatch.syspath_prepend(EXAMPLES / "ports")
    runpy.run_path(str(EXAMPLES / "ports" / f"{name}.py"), run_name="__main__")
    assert "(" in capsys.readouterr().out  # shapes


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_video_example_tells_directions(tmp_path, monkeypatch, capsys):
    """It learns what no single frame shows."""
    monkeypatch.setattr(sys, "argv", ["video.py", "--data", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "video.py"), run_name="__main__")
    text = capsys.readouterr().out
    accuracies = [int(share) for share in re.findall(r"epoch \d+: (\d+)% of the validation clips", text)]
    assert len(accuracies) == 8 and accuracies[-1] > 90
    assert "per clip" in text and "decoded by: video " in text


# --- inference.py -----------------------------------------------------------------------------------------------------

INFERENCE = runpy.run_path(str(EXAMPLES / "inference.py"))
Batcher, main = INFERENCE["Batcher"], INFERENCE["main"]
CHAIN = T.Compose([T.Resize((8, 8))])


def picture(level: int) -> bytes:
    return encode(Image.new("RGB", (30 + level % 7, 20), (level, 0, 0)), "PNG")


class Model:
    """Returns each image's red level, and notes the batches' sizes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        self.sizes.append(len(images))
        return images[:, 0, 0, 0]


def test_answers_belong_to_their_requests():
    model = Model()
    answers = {}
    with Batcher(model, CHAIN, max_batch=16, max_wait=0.2) as batcher:

        def client(levels: range) -> None:
            for level in levels:
                answers[level] = batcher.submit(picture(level))

        clients = [threading.Thread(target=client, args=(range(k, 60, 4),)) for k in range(4)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
    assert {level: int(answer.result()) for level, answer in answers.items()} == {level: level for level in range(60)}
    assert max(model.sizes) == 16 and sum(model.sizes) == 60


def test_a_damaged_image_costs_only_its_own_answer():
    with Batcher(Model(), CHAIN, max_wait=0.2) as batcher:
        answers = [batcher.submit(data) for data in (picture(5), b"no image", picture(6), b"")]
    assert [int(answers[i].result()) for i in (0, 2)] == [5, 6]
    for i in (1, 3):
        with pytest.raises(cuaug.DecodeError):
            answers[i].result()


def test_a_models_error_reaches_the_callers():
    def broken(images: torch.Tensor) -> torch.Tensor:
        raise ValueError("a layer is missing")

    with Batcher(broken, CHAIN) as batcher:
        answer = batcher.submit(picture(1))
    with pytest.raises(ValueError, match="a layer"):
        answer.result()


def test_the_program_of_inference(tmp_path, capsys):
    (tmp_path / "a.png").write_bytes(picture(3))
    (tmp_path / "b.png").write_bytes(b"text")
    main([str(tmp_path / "a.png"), str(tmp_path / "b.png")])
    one, other = capsys.readouterr().out.splitlines()
    assert "a.png: class " in one and "b.png: cannot decode (sample" in other
