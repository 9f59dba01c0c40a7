"""`CudaDecoder` with a fake nvImageCodec and fake device memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug.codec import CpuDecoder, CudaDecoder, DecoderPaths, read_header
from cuaug.errors import DecodeError
from tests.support.codec.encoded_images import (
    FORMATS,
    JPEG,
    PHOTO,
    H,
    W,
    app1,
    as_pillow,
    encode,
    jpeg_with,
    tiff_block,
    without_segments,
)

ROTATED = jpeg_with(app1(tiff_block(6)))
OTHER = encode(Image.fromarray(PHOTO[:20, :30]), "JPEG")
PNG = FORMATS["png rgb"]
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
        self,
        failing: tuple[int, ...] = (),
        raising: tuple[int, ...] = (),
        rotates: bool = True,
        recovers: bool = False,
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
    """Makes a `CudaDecoder` on a fake nvImageCodec decoder, or on one for JPEGs and one for other formats."""

    def make(fake: FakeDecoder, load_hint: float = 0, others: FakeDecoder | None = None) -> CudaDecoder:
        def open_decoder(backends: list[str], **options: Any) -> FakeDecoder:
            if others is None or "CPU_ONLY" not in backends:
                return fake
            return others

        codec = SimpleNamespace(
            Decoder=open_decoder,
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
        monkeypatch.setattr("cuaug.codec.cuda_decoder.nv", lambda: codec)
        monkeypatch.setattr("cuaug.codec.cuda_decoder.decode_params", lambda exif: "displayed" if exif else "stored")
        fake.events.clear()
        decoder = CudaDecoder(0, DecoderPaths(load_hint=load_hint))
        assert fake.events == ["empty_cache"], "nvImageCodec needs memory outside of torch's cache"
        fake.events.clear()
        return decoder

    return make


def decode_with(decoder: CudaDecoder, *files: bytes, **options: Any) -> list[Any]:
    slots = [SimpleNamespace(shape=None, rotated=data == ROTATED) for data in files]
    return decoder.decode_batch([read_header(data, **options) for data in files], slots, 7)


@pytest.fixture
def decode(make_decoder):
    def run(fake: FakeDecoder, *files: bytes, **options: Any) -> list[Any]:
        return decode_with(make_decoder(fake), *files, **options)

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


def test_priming_writes_to_idle_memory_of_our_own(make_decoder, monkeypatch):
    """The engine may write when it is called; torch may have handed out memory that queued work still uses."""
    fake, written = FakeDecoder(), []
    decoder = make_decoder(fake, load_hint=1.0)
    decode = fake.decode

    def recorded(*arguments: Any, images: Any, **options: Any) -> Any:
        written.extend(images)
        return decode(*arguments, images=images, **options)

    monkeypatch.setattr(fake, "decode", recorded)
    decoder.prime(4, 7)
    assert fake.events == ["allocate", "synchronize", "decode", "synchronize"]
    assert len({image.array.data_ptr() for image in written}) == 4
    assert all(image.array.shape == (1, 320 * 240, 3) for image in written)


@pytest.mark.parametrize("load_hint", [0.0, 0.65])
def test_jpegs_have_no_cpu_backend(make_decoder, load_hint):
    backends = dict(DecoderPaths(load_hint=load_hint).jpeg_backends)
    assert "CPU_ONLY" not in backends and backends.get("HW_GPU_ONLY", 0) == load_hint
    jpegs, others = FakeDecoder(), FakeDecoder()
    decoder = make_decoder(jpegs, load_hint, others)
    assert decode_with(decoder, JPEG, PNG, OTHER) == [None] * 3
    assert jpegs.calls == [(2, "stored")] and others.calls == [(1, "stored")]


def test_a_jpeg_that_fails_is_tried_again_with_more_memory(make_decoder):
    fake = FakeDecoder(failing=(1,), recovers=True)
    decoder = make_decoder(fake)
    assert decode_with(decoder, JPEG, OTHER, JPEG) == [None] * 3
    assert fake.calls == [(3, "stored"), (1, "stored")], "only the one that failed is decoded again"
    assert fake.events == ["decode", "synchronize", "empty_cache", "decode"]
    assert decoder.fallbacks == []


def test_a_jpeg_that_fails_twice_is_decoded_on_the_cpu_and_counted(make_decoder):
    """With the pixels of a loader on the CPU. A damaged file is no fallback, nor is another format."""
    fake, others = FakeDecoder(raising=(1, 2, 3)), FakeDecoder(raising=(1,))
    decoder = make_decoder(fake, others=others)
    first, second, third, fourth = decode_with(decoder, JPEG, PNG, without_segments(JPEG, 0xDB), ROTATED)
    np.testing.assert_array_equal(first, CpuDecoder().decode(read_header(JPEG)))
    np.testing.assert_array_equal(second, as_pillow(PNG))
    assert isinstance(third, DecodeError)
    np.testing.assert_array_equal(fourth, CpuDecoder().decode(read_header(ROTATED)))
    assert decoder.fallbacks == [0, 3]
    assert decoder.cause == "RuntimeError: bad stream; 100 MiB of device memory were free"
    assert decode_with(decoder, PNG)[0] is not None
    assert decoder.fallbacks == []


def test_a_failure_without_an_exception_names_the_memory(make_decoder):
    decoder = make_decoder(FakeDecoder(failing=(0,)))
    decode_with(decoder, JPEG)
    assert "PYNVIMGCODEC_VERBOSITY=1" in decoder.cause and "100 MiB" in decoder.cause


def test_the_cpu_follows_fancy_upsampling(make_decoder):
    make_decoder(FakeDecoder())
    decoder = CudaDecoder(0, DecoderPaths(fancy_upsampling=False))
    decoder._jpeg_decoder = FakeDecoder(failing=(0,))
    header = read_header(JPEG)
    want = CpuDecoder(fancy_upsampling=False).decode(header).copy()
    np.testing.assert_array_equal(decode_with(decoder, JPEG)[0], want)
    assert (want != CpuDecoder().decode(header)).any()


def test_torchs_cache_is_not_emptied_in_vain(make_decoder, monkeypatch):
    """Emptying stalls training: a damaged file in each batch must not do so each time, nor where memory is free."""
    fake = FakeDecoder(failing=(0,))
    decoder = make_decoder(fake)
    emptied = []
    for free in (100 << 30, 1 << 30, 1 << 30, 600 << 20, 400 << 20, 400 << 20, 100 << 20):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 1 << 40))
        fake.events.clear()
        decode_with(decoder, JPEG)
        emptied.append("empty_cache" in fake.events)
    assert emptied == [False, True, False, False, True, False, True]


def test_images_for_pillow_need_no_slot(make_decoder):
    tiff = next(data for name, data in FORMATS.items() if name.startswith("tiff"))
    images = [read_header(tiff), read_header(JPEG)]
    slot = SimpleNamespace(shape=None, rotated=False)
    first, second = make_decoder(FakeDecoder()).decode_batch(images, [None, slot], 7)
    np.testing.assert_array_equal(first, as_pillow(tiff))
    assert second is None


def test_options():
    assert DecoderPaths().options == ":fancy_upsampling=1"
    assert DecoderPaths(fancy_upsampling=False).options == ":fancy_upsampling=0"


def test_a_batch_is_one_call(decode):
    fake = FakeDecoder()
    assert decode(fake, JPEG, OTHER, JPEG) == [None] * 3
    assert fake.calls == [(3, "stored")] and fake.events == ["decode"]


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


def test_a_failing_call_is_repeated_image_by_image(decode):
    fake = FakeDecoder(raising=(3,))
    assert decode(fake, JPEG, ROTATED, OTHER) == [None] * 3
    assert fake.calls == [(3, "displayed"), (1, "stored"), (1, "displayed"), (1, "stored")]


def test_pillows_formats_do_not_go_to_nvimagecodec(decode):
    fake = FakeDecoder()
    tiff = next(data for name, data in FORMATS.items() if name.startswith("tiff"))
    first, second = decode(fake, tiff, JPEG)
    assert fake.calls == [(1, "stored")] and second is None
    np.testing.assert_array_equal(first, as_pillow(tiff))
    assert decode(FakeDecoder(), tiff)[0] is not None
