"""`NvImageCodecDecoder` with a fake nvImageCodec and fake device memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug.codec import CpuDecoder, DecoderPaths, NvImageCodecDecoder, read_header
from tests.support.codec.encoded_images import JPEG, PHOTO, H, W, app1, as_pillow, encode, jpeg_with, tiff_block

ROTATED = jpeg_with(app1(tiff_block(6)))
OTHER = encode(Image.fromarray(PHOTO[:20, :30]), "JPEG")
FREE = 100 << 20
EMPTY = torch.empty


class FakeDecoder:
    """Replaces nvImageCodec's Decoder; sets the shape of each output image.

    Args:
        failing: positions of images that fail, within a call.
        raising: sizes of calls that raise.
        rotates: whether it applies the EXIF orientation.
        recovers: whether nothing fails once torch's cache is empty.

    Attributes:
        calls: (number of images, parameters) of each call.
        events: "synchronize", "empty_cache", "allocate" and "decode", in order.
    """

    def __init__(
        self, failing: tuple[int, ...] = (), raising: tuple[int, ...] = (), rotates: bool = True, recovers: bool = False
    ) -> None:
        self._failing, self._raising, self._rotates, self._recovers = failing, raising, rotates, recovers
        self.calls: list[tuple[int, str]] = []
        self.events: list[str] = []

    def decode(self, streams: Any, *, images: Any, params: str, cuda_stream: int) -> list[Any]:
        self.calls.append((len(streams), params))
        self.events.append("decode")
        if self._recovers and "empty_cache" in self.events:
            self._failing = self._raising = ()
        if len(streams) in self._raising:
            raise RuntimeError("bad stream")
        for stream, image in zip(streams, images, strict=True):
            size = stream.height, stream.width
            rotated = params == "displayed" and self._rotates and image.rotated
            image.shape = (*(size[::-1] if rotated else size), 3)
        return [None if i in self._failing else image for i, image in enumerate(images)]


@pytest.fixture
def make_decoder(monkeypatch):
    """Makes a `NvImageCodecDecoder` on a fake nvImageCodec decoder."""

    def make(fake: FakeDecoder) -> NvImageCodecDecoder:
        codec = SimpleNamespace(
            Decoder=lambda **options: fake,
            BackendKind=SimpleNamespace(**{kind: kind for kind in KINDS}),
            Backend=lambda kind, load_hint: kind,
            as_image=lambda array, cuda_stream: SimpleNamespace(shape=None, rotated=False, array=array),
        )

        def allocate(shape: Any, *, dtype: Any, device: Any) -> torch.Tensor:
            assert device == torch.device("cuda", 0)
            fake.events.append("allocate")
            return EMPTY(shape, dtype=dtype)

        monkeypatch.setattr(torch, "empty", allocate)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (FREE, 80 << 30))
        for name in ("synchronize", "empty_cache"):
            monkeypatch.setattr(torch.cuda, name, lambda *device, name=name: fake.events.append(name))
        monkeypatch.setattr("cuaug.codec.nvimgcodec_decoder.nv", lambda: codec)
        monkeypatch.setattr(
            "cuaug.codec.nvimgcodec_decoder.decode_params", lambda exif: "displayed" if exif else "stored"
        )
        fake.events.clear()
        decoder = NvImageCodecDecoder(0)
        assert fake.events == ["empty_cache"], "nvImageCodec needs memory outside of torch's cache"
        fake.events.clear()
        return decoder

    return make


def decode_with(decoder: NvImageCodecDecoder, *files: bytes, **options: Any) -> list[Any]:
    slots = [SimpleNamespace(shape=None, rotated=data == ROTATED) for data in files]
    return decoder.decode_batch([read_header(data, **options) for data in files], slots, 7)


KINDS = ("HW_GPU_ONLY", "GPU_ONLY", "HYBRID_CPU_GPU", "CPU_ONLY")


def test_priming_writes_to_idle_memory_of_our_own(make_decoder, monkeypatch):
    """The engine may write when it is called; torch may have handed out memory that queued work still uses."""
    fake, written = FakeDecoder(), []
    decoder = make_decoder(fake)
    decode = fake.decode

    def recorded(*arguments: Any, images: Any, **options: Any) -> Any:
        written.extend(images)
        return decode(*arguments, images=images, **options)

    monkeypatch.setattr(fake, "decode", recorded)
    decoder.prime(4, 7)
    assert fake.events == ["allocate", "synchronize", "decode", "synchronize"]
    assert len({image.array.data_ptr() for image in written}) == 4
    assert all(image.array.shape == (1, 320 * 240, 3) for image in written)


def test_a_jpeg_that_fails_is_tried_again_with_more_memory(make_decoder):
    fake = FakeDecoder(failing=(1,), recovers=True)
    decoder = make_decoder(fake)
    assert decode_with(decoder, JPEG, OTHER, JPEG) == [None] * 3
    assert fake.calls == [(3, "stored"), (1, "stored")], "only the one that failed is decoded again"
    assert fake.events == ["decode", "synchronize", "empty_cache", "decode"]
    assert decoder.fallbacks == []


def test_the_cpu_follows_fancy_upsampling(make_decoder):
    make_decoder(FakeDecoder())
    decoder = NvImageCodecDecoder(0, DecoderPaths(fancy_upsampling=False))
    decoder._jpeg_decoder = FakeDecoder(failing=(0,))
    header = read_header(JPEG)
    want = CpuDecoder(fancy_upsampling=False).decode(header).copy()
    np.testing.assert_array_equal(decode_with(decoder, JPEG)[0], want)
    assert (want != CpuDecoder().decode(header)).any()


def test_a_batch_with_a_rotated_image_is_one_call(make_decoder):
    fake = FakeDecoder()
    assert decode_with(make_decoder(fake), JPEG, ROTATED, OTHER) == [None] * 3
    assert fake.calls == [(3, "displayed")]
    fake = FakeDecoder()
    assert decode_with(make_decoder(fake), JPEG, ROTATED, apply_exif=False) == [None] * 2
    assert fake.calls == [(2, "stored")]


def test_an_image_of_the_wrong_size_goes_to_pillow(make_decoder):
    first, second = decode_with(make_decoder(FakeDecoder(rotates=False)), JPEG, ROTATED)
    assert first is None
    assert second.shape == (W, H, 3)
    np.testing.assert_array_equal(second, as_pillow(ROTATED))


def test_a_failing_call_is_repeated_image_by_image(make_decoder):
    fake = FakeDecoder(raising=(3,))
    assert decode_with(make_decoder(fake), JPEG, ROTATED, OTHER) == [None] * 3
    assert fake.calls == [(3, "displayed"), (1, "stored"), (1, "displayed"), (1, "stored")]
