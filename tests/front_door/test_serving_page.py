"""The server of docs/serving.md answers requests."""

from __future__ import annotations

import base64
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image

import cuaug
from tests.support.codec.encoded_images import encode, photo

testclient = pytest.importorskip("fastapi.testclient")
PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
JPEGS = [encode(Image.fromarray(photo(300, 410) // divisor), "JPEG") for divisor in (1, 9, 1)]


@pytest.fixture
def client():
    """The server, with a model that gives the sign of the mean."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {"model": lambda batch: torch.stack([batch.mean((1, 2, 3)), -batch.mean((1, 2, 3))], dim=1)}
    exec(compile(code, "docs/serving.md", "exec"), names)
    return testclient.TestClient(names["app"]), names


def ask(client, files: list[bytes]) -> list[int | str]:
    answer = client.post("/classify", json={"base64": [base64.b64encode(data).decode() for data in files]})
    assert answer.status_code == 200
    return answer.json()


def test_each_image_has_its_answer(client):
    server, names = client
    classes = names["model"](cuaug.decode(JPEGS, names["CHAIN"])).argmax(1).tolist()
    assert ask(server, JPEGS) == classes
    first, damaged, *others = ask(server, [JPEGS[0], b"no image", *JPEGS[1:]])
    assert [first, *others] == classes == [classes[0], 1, classes[0]] and isinstance(damaged, str)
    assert all(isinstance(answer, str) for answer in ask(server, [b"", JPEGS[0][:100]]))


def test_clients_are_answered_at_once(client):
    server, _ = client
    want = ask(server, JPEGS)
    with ThreadPoolExecutor(4) as pool:
        assert all(answer == want for answer in pool.map(lambda _: ask(server, JPEGS), range(12)))
