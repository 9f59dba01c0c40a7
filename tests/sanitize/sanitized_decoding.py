"""Decodes damaged files between sound ones, whole and cropped; tests/kernels/test_sanitizers.py runs it.

python -m tests.sanitize.sanitized_decoding COUNT
"""

from __future__ import annotations

import random
import sys

from PIL import Image

from cuaug.codec import CpuDecoder, EncodedImage, JpegIndex, Region, read_header
from cuaug.errors import DecodeError
from tests.fuzz.mutations import mutate
from tests.support.codec.encoded_images import encode
from tests.support.codec.originals import ORIGINALS


def main(count: int) -> None:
    rng, index, decoder = random.Random(0), JpegIndex(1 << 24), CpuDecoder()
    noise = Image.effect_noise((200, 300), 60).convert("RGB")
    sound = [encode(noise, "JPEG", quality=quality) for quality in (60, 80, 95)]
    sound += [encode(noise, "JPEG", quality=90, restart_marker_blocks=4), encode(noise, "PNG")]
    originals = list(ORIGINALS.values())
    decoded_by, crops = {"cpu": 0, "pillow": 0, "nobody": 0}, 0
    for _ in range(count):
        files = rng.choices(sound, k=rng.randrange(4))
        files += [mutate(rng, rng.choice(originals), rng.choice(originals))[0] for _ in range(rng.randrange(1, 5))]
        rng.shuffle(files)
        headers = [header for data in files if (header := _header(data)) is not None]
        regions = [rng.choice((None, _region(rng, header))) for header in headers]
        for header, region in zip(headers, regions, strict=True):
            try:
                decoder.decode(header, region, index=index)
            except DecodeError:
                decoded_by["nobody"] += 1
            else:
                decoded_by[decoder.decoded_by] += 1
                crops += decoder.cropped
    print("decoded", decoded_by, "cropped", crops)
    assert min(crops, *decoded_by.values()) >= count // 20


def _header(data: bytes) -> EncodedImage | None:
    try:
        return read_header(data, max_pixels=1 << 20, lossy=True)
    except DecodeError:
        return None


def _region(rng: random.Random, header: EncodedImage) -> Region:
    y0, x0 = rng.randrange(header.height), rng.randrange(header.width)
    return y0, x0, rng.randrange(y0, header.height) + 1, rng.randrange(x0, header.width) + 1


if __name__ == "__main__":
    main(int(sys.argv[1]))
