"""nvImageCodec on the GPU against Pillow, which uses libjpeg-turbo."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import DecodeOptions, Loader
from cuaug.codec import NvImageCodecDecoder, read_header
from cuaug.errors import DecodeError
from tests.support.codec.encoded_images import as_pillow, encode, without_segments
from tests.support.loader.further_pictures import Bytes, photo

pytestmark = pytest.mark.cuda

# The engines' inverse DCT, chroma filter and color conversion round differently. An H200 differs by 0.70 levels on
# average and 5 at most, with 4:2:0.
MAX_LEVELS, MEAN_LEVELS = 8, 0.75


def jpeg(image: np.ndarray, **options) -> bytes:
    return encode(Image.fromarray(image), "JPEG", **{"quality": 92} | options)


def decoded(*data: bytes, **options) -> list[np.ndarray]:
    """The files, decoded by nvImageCodec in a batch each because sizes differ."""
    with Loader(Bytes(*data), device="cuda", decode=DecodeOptions(decoder="nvimgcodec"), **options) as loader:
        return [images[0].permute(1, 2, 0).cpu().numpy() for images, _ in loader]


def difference(got: np.ndarray, want: np.ndarray, name: str) -> str:
    """A description of the difference; empty if it is within the tolerance."""
    if got.shape != want.shape:
        return f"{name}: {got.shape} instead of {want.shape}"
    error = np.abs(got.astype(int) - want)
    is_close = error.max() <= MAX_LEVELS and error.mean() <= MEAN_LEVELS
    return "" if is_close else f"{name}: max {error.max()}, mean {error.mean():.3f}"


def assert_close(got: np.ndarray, want: np.ndarray, name: str) -> None:
    error = difference(got, want, name)
    assert not error, error


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpegs_decode_as_pillow_does(subsampling, progressive):
    sizes = [(1, 1), (7, 9), (16, 16), (33, 31), (375, 500), (501, 333), (1080, 1920)]
    files = [jpeg(photo(h, w, h), subsampling=subsampling, progressive=progressive) for h, w in sizes]
    expected = [as_pillow(data) for data in files]
    errors = [
        difference(got, want, str(size)) for size, want, got in zip(sizes, expected, decoded(*files), strict=True)
    ]
    assert not any(errors), errors  # of all sizes


def test_gray_and_channel_order():
    red = np.zeros((40, 60, 3), np.uint8) + np.array([255, 0, 0], np.uint8)
    files = jpeg(red), jpeg(photo(50, 70)[..., 0])
    got = decoded(*files)
    assert got[0][..., 0].min() > 245 and got[0][..., 1:].max() < 10
    assert (got[1] == got[1][..., :1]).all()


@pytest.mark.parametrize("value", range(1, 9))
def test_exif_orientation_is_applied(value):
    exif = Image.Exif()
    exif[0x0112] = value
    data = jpeg(photo(48, 80), exif=exif, subsampling="4:4:4")
    assert_close(decoded(data)[0], as_pillow(data), f"orientation {value}")


def test_other_files_of_the_batch_matter_little():
    """The hardware engine decodes a share of each batch and CUDA kernels the rest; a file meets both."""
    data = jpeg(photo(375, 500))
    others = [jpeg(photo(375, 500, seed)) for seed in range(1, 32)]
    seen = []
    for place in range(0, 32, 3):
        files = [*others[:place], data, *others[place:]]
        with Loader(Bytes(*files), batch_size=32, device="cuda", decode=DecodeOptions(decoder="nvimgcodec")) as loader:
            seen.append(next(iter(loader))[0][place].short())
    spread = torch.stack(seen).amax(0) - torch.stack(seen).amin(0)
    assert spread.max().item() <= MAX_LEVELS and spread.float().mean().item() <= MEAN_LEVELS


SUBSAMPLINGS = ("4:4:4", "4:2:2", "4:2:0", "gray")


def mixed_company() -> list[bytes]:
    """16 files of three subsamplings and gray: 13 of several kinds make nvImageCodec choose another path."""
    return [
        jpeg(photo(200 + 9 * i, 300 - 7 * i, i)[..., 0])
        if kind == "gray"
        else jpeg(photo(200 + 9 * i, 300 - 7 * i, i), subsampling=kind)
        for i, kind in enumerate(SUBSAMPLINGS * 4)
    ]


def undecodable() -> list[bytes]:
    """JPEGs with sound markers: without quantization tables, without Huffman tables, with a third of the scan."""
    data = jpeg(photo(220, 310, 99))
    return [without_segments(data, 0xDB), without_segments(data, 0xC4), data[: len(data) // 3] + b"\xff\xd9"]


def decoded_in(batches: list[list[bytes]]) -> list[list[torch.Tensor]]:
    """Each batch's pixels, as packed bytes, of one decoder that is primed for the largest batch."""
    decoder, stream = NvImageCodecDecoder(torch.cuda.current_device()), torch.cuda.Stream()
    decoder.prime(max(map(len, batches)), stream.cuda_stream)
    results = []
    for batch in batches:
        headers = [read_header(data) for data in batch]
        memory = [torch.zeros((1, each.height * each.width, 3), dtype=torch.uint8, device="cuda") for each in headers]
        slots = [decoder.wrap(array, stream.cuda_stream) for array in memory]
        torch.cuda.synchronize()
        decoder.decode_batch(headers, slots, stream.cuda_stream)
        stream.synchronize()
        results.append([array.view(-1) for array in memory])
    return results


def test_with_one_decoder_a_file_alone_equals_it_in_mixed_company():
    """The number of neighbors and their subsamplings choose the engine's path, which must not show."""
    company = mixed_company()
    batches = [company, company[:2], *([data] for data in company[:4])]
    whole, pair, *alone = decoded_in(batches)
    for i, kind in enumerate(SUBSAMPLINGS):
        assert whole[i].any() and torch.equal(whole[i], alone[i][0]), f"{kind} in company of 16"
    assert all(torch.equal(whole[i], pair[i]) for i in range(2)), "in company of 2"


def test_a_damaged_neighbor_in_mixed_company():
    """A failing JPEG may cost the engine's batch, which CUDA kernels then decode: levels differ a little."""
    company, bad = mixed_company(), undecodable()
    whole, *others = decoded_in([company, *([*company[:7], data, *company[7:]] for data in bad)])
    for number, pixels in enumerate(others):
        del pixels[7]
        for i, (got, want) in enumerate(zip(pixels, whole, strict=True)):
            name = f"{SUBSAMPLINGS[i % 4]} beside damaged file {number}"
            assert_close(got.cpu().numpy(), want.cpu().numpy(), name)


@pytest.mark.fills_gpu
def test_memory_that_torch_caches_does_not_move_decoding_to_the_cpu():
    """nvJPEG allocates outside of torch: it fails where torch's cache holds the memory, until that is emptied."""
    large = [read_header(jpeg(photo(3000, 4000, seed))) for seed in range(8)]
    memory = [torch.zeros((1, 3000 * 4000, 3), dtype=torch.uint8, device="cuda") for _ in large]
    decoder, stream = NvImageCodecDecoder(torch.cuda.current_device()), torch.cuda.Stream()
    decoder.prime(8, stream.cuda_stream)
    slots = [decoder.wrap(array, stream.cuda_stream) for array in memory]
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    hoard = torch.empty(free - (32 << 20), dtype=torch.uint8, device="cuda")
    del hoard  # stays in torch's cache
    try:
        outcomes = decoder.decode_batch(large, slots, stream.cuda_stream)
        assert [type(outcome) for outcome in outcomes] == [type(None)] * 8, decoder.cause
        stream.synchronize()
    finally:
        torch.cuda.empty_cache()
    assert all(array.any() for array in memory)


def damaged(data: bytes, seed: int) -> bytes:
    """Flips some bits in the second half of the last scan, where no marker reveals it."""
    rng = np.random.default_rng(seed)
    bits = np.frombuffer(data, np.uint8).copy()
    scan = data.rfind(b"\xff\xda") + 14
    at = rng.integers((scan + len(data)) // 2, len(data) - 2, rng.integers(1, 30))
    bits[at] ^= 1 << rng.integers(0, 8, len(at)).astype(np.uint8)
    return bits.tobytes()


@pytest.mark.parametrize("kind", [{"subsampling": "4:2:0"}, {"subsampling": "4:4:4"}, {"progressive": True}], ids=str)
def test_damaged_scans_keep_nothing_of_the_previous_image(kind):
    """A slot that the decoder reports as decoded but does not write would give an old image a new label."""
    whole = [jpeg(photo(375, 500, seed), **kind) for seed in range(8)]
    files = [data for i in range(64) for data in (damaged(whole[i % 8], i), whole[i % 8])]
    headers = [read_header(data) for data in files]
    before = torch.randint(0, 256, (375, 500, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    memory = [before.cuda().view(1, -1, 3).clone() for _ in files]
    decoder, stream = NvImageCodecDecoder(torch.cuda.current_device()), torch.cuda.Stream()
    slots = [decoder.wrap(array, stream.cuda_stream) for array in memory]
    torch.cuda.synchronize()
    outcomes = decoder.decode_batch(headers, slots, stream.cuda_stream)
    stream.synchronize()
    wrong = []
    for i, (array, outcome) in enumerate(zip(memory, outcomes, strict=True)):
        name = f"{i} {'whole' if i % 2 else 'damaged'}"
        if isinstance(outcome, DecodeError):
            wrong += [f"{name}: {outcome}"] * (i % 2)
            continue
        got = array.view(375, 500, 3).cpu().numpy() if outcome is None else outcome
        kept = (got == before.numpy()).all(axis=(1, 2)).sum()
        if kept:
            wrong.append(f"{name}: {kept} rows are still of the previous image")
        want = as_pillow(whole[i // 2 % 8])
        if i % 2:
            wrong += filter(None, [difference(got, want, name)])
        elif "progressive" not in kind:  # a later scan of a progressive JPEG refines all rows
            error = np.abs(got[:100].astype(int) - want[:100]).mean()
            wrong += [f"{name}: the rows before the damage differ by {error:.1f} levels"] * bool(error > 3)
    assert not wrong, wrong
