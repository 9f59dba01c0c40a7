"""What `CudaDecoder` makes of nvImageCodec's answers; nvImageCodec itself is replaced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cuaug.codec import CudaDecoder, read_header
from cuaug.errors import DecodeError
from tests.codec.images import FORMATS, JPEG, PHOTO, H, W, app1, as_pillow, encode, jpeg_with, tiff_block

TURNED = jpeg_with(app1(tiff_block(6)))
OTHER = encode(Image.fromarray(PHOTO[:20, :30]), "JPEG")


class Answers:
    """In place of nvImageCodec's Decoder: gives each image the shape that it is told to have.

    Args:
        bad: streams, by number of the call's, which are None, as after a failure.
        raises: sizes of calls that raise.
        turns: whether it turns pictures that are to be turned.
    """

    def __init__(self, bad: tuple[int, ...] = (), raises: tuple[int, ...] = (), turns: bool = True) -> None:
        self._bad, self._raises, self._turns = bad, raises, turns
        self.calls: list[tuple[int, str]] = []

    def decode(self, streams: Any, *, images: Any = None, params: str, cuda_stream: int) -> list[Any]:
        self.calls.append((len(streams), params))
        if len(streams) in self._raises:
            raise RuntimeError("a stream is not what it seems")
        if images is None:
            assert len(set(map(id, streams))) == len(streams) and streams[0].height >= 64
            return [None] * len(streams)
        for stream, image in zip(streams, images, strict=True):
            size = stream.height, stream.width
            turned = params == "displayed" and self._turns and image.turned
            image.shape = (*(size[::-1] if turned else size), 3)
        return [None if i in self._bad else image for i, image in enumerate(images)]


@pytest.fixture
def opened(monkeypatch):
    """A decoder whose nvImageCodec answers so."""

    def open(answers: Answers, load_hint: float = 0) -> CudaDecoder:
        codec = SimpleNamespace(
            Decoder=lambda device_id, **_: answers,
            BackendKind=SimpleNamespace(**dict.fromkeys(KINDS)),
            Backend=lambda kind, load_hint=1.0: kind,
        )
        monkeypatch.setattr("cuaug.codec.cuda.nv", lambda: codec)
        monkeypatch.setattr("cuaug.codec.cuda.decode_params", lambda exif: "displayed" if exif else "stored")
        return CudaDecoder(0, load_hint=load_hint)

    return open


@pytest.fixture
def decode(opened):
    def run(answers: Answers, *files: bytes, **options: Any) -> list[Any]:
        slots = [SimpleNamespace(shape=None, turned=data == TURNED) for data in files]
        headers = [read_header(data, **options) for data in files]
        return opened(answers).decode_batch(headers, slots, 7)

    return run


KINDS = ("HW_GPU_ONLY", "GPU_ONLY", "HYBRID_CPU_GPU", "CPU_ONLY")


def test_priming_is_a_call_of_as_many_images(opened):
    """What it raises is not told: a batch has its own way of failing. Without the engine there is nothing to do."""
    answers = Answers(raises=(3,))
    for images in (5, 3):
        opened(answers, load_hint=0.65).prime(images, 7)
    assert answers.calls == [(5, "stored"), (3, "stored")]
    opened(answers, load_hint=0).prime(5, 7)
    assert len(answers.calls) == 2


def test_a_batch_is_one_call(decode):
    answers = Answers()
    assert decode(answers, JPEG, OTHER, FORMATS["png rgb"]) == [None] * 3
    assert answers.calls == [(3, "stored")]


def test_turned_among_others(decode):
    answers = Answers()
    assert decode(answers, JPEG, TURNED, OTHER) == [None] * 3
    assert answers.calls == [(3, "displayed")]
    answers = Answers()
    assert decode(answers, JPEG, TURNED, apply_exif=False) == [None] * 2
    assert answers.calls == [(2, "stored")]


def test_one_that_is_not_turned_as_its_header_says(decode):
    first, second = decode(Answers(turns=False), JPEG, TURNED)
    assert first is None
    assert second.shape == (W, H, 3)
    np.testing.assert_array_equal(second, as_pillow(TURNED))


def without_tables(data: bytes) -> bytes:
    """A JPEG that has lost its quantization tables: its markers are sound."""
    while (at := data.find(b"\xff\xdb")) >= 0:
        data = data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]
    return data


def test_what_nobody_decodes(decode):
    first, second, third, fourth = decode(Answers(bad=(1, 2)), JPEG, OTHER, without_tables(JPEG), OTHER)
    assert first is None and fourth is None
    np.testing.assert_array_equal(second, as_pillow(OTHER))
    assert isinstance(third, DecodeError)


def test_a_failing_call_is_made_again_one_by_one(decode):
    answers = Answers(raises=(3,))
    assert decode(answers, JPEG, TURNED, OTHER) == [None] * 3
    assert answers.calls == [(3, "displayed"), (1, "stored"), (1, "displayed"), (1, "stored")]
    first, second = decode(Answers(raises=(1, 2)), JPEG, OTHER)
    np.testing.assert_array_equal(first, as_pillow(JPEG))
    np.testing.assert_array_equal(second, as_pillow(OTHER))


def test_what_is_pillows_does_not_go_there(decode):
    answers = Answers()
    tiff = next(data for name, data in FORMATS.items() if name.startswith("tiff"))
    first, second = decode(answers, tiff, JPEG)
    assert answers.calls == [(1, "stored")] and second is None
    np.testing.assert_array_equal(first, as_pillow(tiff))
    assert decode(Answers(), tiff)[0] is not None
