"""`CudaDecoder` with a fake nvImageCodec."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cuaug.codec import CudaDecoder, read_header
from cuaug.errors import DecodeError
from tests.codec.images import FORMATS, JPEG, PHOTO, H, W, app1, as_pillow, encode, jpeg_with, tiff_block

ROTATED = jpeg_with(app1(tiff_block(6)))
OTHER = encode(Image.fromarray(PHOTO[:20, :30]), "JPEG")


class FakeDecoder:
    """Replaces nvImageCodec's Decoder; sets the shape of each output image.

    Args:
        failing: positions of images that fail, within a call.
        raising: sizes of calls that raise.
        rotates: whether it applies the EXIF orientation.
    """

    def __init__(self, failing: tuple[int, ...] = (), raising: tuple[int, ...] = (), rotates: bool = True) -> None:
        self._failing, self._raising, self._rotates = failing, raising, rotates
        self.calls: list[tuple[int, str]] = []

    def decode(self, streams: Any, *, images: Any = None, params: str, cuda_stream: int) -> list[Any]:
        self.calls.append((len(streams), params))
        if len(streams) in self._raising:
            raise RuntimeError("bad stream")
        if images is None:
            assert len(set(map(id, streams))) == len(streams) and streams[0].height >= 64
            return [None] * len(streams)
        for stream, image in zip(streams, images, strict=True):
            size = stream.height, stream.width
            rotated = params == "displayed" and self._rotates and image.rotated
            image.shape = (*(size[::-1] if rotated else size), 3)
        return [None if i in self._failing else image for i, image in enumerate(images)]


@pytest.fixture
def make_decoder(monkeypatch):
    """Makes a `CudaDecoder` on a fake nvImageCodec decoder."""

    def make(fake: FakeDecoder, load_hint: float = 0) -> CudaDecoder:
        codec = SimpleNamespace(
            Decoder=lambda device_id, **_: fake,
            BackendKind=SimpleNamespace(**dict.fromkeys(KINDS)),
            Backend=lambda kind, load_hint=1.0: kind,
        )
        monkeypatch.setattr("cuaug.codec.cuda.nv", lambda: codec)
        monkeypatch.setattr("cuaug.codec.cuda.decode_params", lambda exif: "displayed" if exif else "stored")
        return CudaDecoder(0, load_hint=load_hint)

    return make


@pytest.fixture
def decode(make_decoder):
    def run(fake: FakeDecoder, *files: bytes, **options: Any) -> list[Any]:
        slots = [SimpleNamespace(shape=None, rotated=data == ROTATED) for data in files]
        images = [read_header(data, **options) for data in files]
        return make_decoder(fake).decode_batch(images, slots, 7)

    return run


KINDS = ("HW_GPU_ONLY", "GPU_ONLY", "HYBRID_CPU_GPU", "CPU_ONLY")


def test_priming_decodes_as_many_images_once(make_decoder):
    """Priming hides errors, which the first batch reports, and does nothing without the hardware engine."""
    fake = FakeDecoder(raising=(3,))
    for images in (5, 3):
        make_decoder(fake, load_hint=0.65).prime(images, 7)
    assert fake.calls == [(5, "stored"), (3, "stored")]
    make_decoder(fake, load_hint=0).prime(5, 7)
    assert len(fake.calls) == 2


def test_a_batch_is_one_call(decode):
    fake = FakeDecoder()
    assert decode(fake, JPEG, OTHER, FORMATS["png rgb"]) == [None] * 3
    assert fake.calls == [(3, "stored")]


def test_a_batch_with_a_rotated_image_is_one_call(decode):
    fake = FakeDecoder()
    assert decode(fake, JPEG, ROTATED, OTHER) == [None] * 3
    assert fake.calls == [(3, "displayed")]
    fake = FakeDecoder()
    assert decode(fake, JPEG, ROTATED, apply_exif=False) == [None] * 2
    assert fake.calls == [(2, "stored")]


def test_an_image_of_the_wrong_size_goes_to_pillow(decode):
    first, second = decode(FakeDecoder(rotates=False), JPEG, ROTATED)
    assert first is None
    assert second.shape == (W, H, 3)
    np.testing.assert_array_equal(second, as_pillow(ROTATED))


def without_tables(data: bytes) -> bytes:
    """A JPEG without quantization tables, with sound markers."""
    while (at := data.find(b"\xff\xdb")) >= 0:
        data = data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]
    return data


def test_failed_images_go_to_pillow_or_raise(decode):
    first, second, third, fourth = decode(FakeDecoder(failing=(1, 2)), JPEG, OTHER, without_tables(JPEG), OTHER)
    assert first is None and fourth is None
    np.testing.assert_array_equal(second, as_pillow(OTHER))
    assert isinstance(third, DecodeError)


def test_a_failing_call_is_repeated_image_by_image(decode):
    fake = FakeDecoder(raising=(3,))
    assert decode(fake, JPEG, ROTATED, OTHER) == [None] * 3
    assert fake.calls == [(3, "displayed"), (1, "stored"), (1, "displayed"), (1, "stored")]
    first, second = decode(FakeDecoder(raising=(1, 2)), JPEG, OTHER)
    np.testing.assert_array_equal(first, as_pillow(JPEG))
    np.testing.assert_array_equal(second, as_pillow(OTHER))


def test_pillows_formats_do_not_go_to_nvimagecodec(decode):
    fake = FakeDecoder()
    tiff = next(data for name, data in FORMATS.items() if name.startswith("tiff"))
    first, second = decode(fake, tiff, JPEG)
    assert fake.calls == [(1, "stored")] and second is None
    np.testing.assert_array_equal(first, as_pillow(tiff))
    assert decode(FakeDecoder(), tiff)[0] is not None
