"""Small videos for tests of the loader, and short forms of loading them."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

from cuaug import Loader
from cuaug import transforms as T
from cuaug.sources import Videos

COUNT, FRAMES, H, W = 6, 40, 48, 64
CHAIN = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4), T.Normalize([0.5] * 3, [0.2] * 3)]


def write(path: Path, number: int, frames: int = FRAMES) -> None:
    """A moving gradient; its mean tells the video."""
    y, x = np.mgrid[:H, :W]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"g": "10", "crf": "10"})
        stream.width, stream.height, stream.pix_fmt = W, H, "yuv420p"
        for t in range(frames):
            picture = np.stack([np.full((H, W), 30 * number + 20), (4 * x + 6 * t) % 256, 5 * y], axis=-1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture.astype(np.uint8), format="rgb24")))
        container.mux(stream.encode())


def videos(paths: list[str], **how) -> Videos:
    return Videos(list(zip(paths, range(len(paths)), strict=True)), **({"frames": 5, "stride": 3} | how))


def load(source, chain=CHAIN, **how):
    with Loader(source, chain, **({"batch_size": 4, "seed": 0} | how)) as loader:
        return list(loader)
