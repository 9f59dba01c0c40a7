"""Sources made of sources of clips, and checksums of videos."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import ConcatDataset, Subset

from cuaug import ArgumentError, Loader
from cuaug.sources import Files, Videos
from tests.support.video.loading import CHAIN, load, videos

HOW = {"batch_size": 3, "shuffle": True, "seed": 7}


@pytest.fixture
def joined(paths):
    """Three sources: random clips, uniform clips of half a source, clips with their own range."""
    return ConcatDataset(
        [
            videos(paths[:3]),
            Subset(videos(paths[2:], sampling="uniform", clips_per_video=2), [5, 0, 3]),
            Videos([(paths[0], 9, 10, 30), (paths[1], 8, 0.4, 1.4)], frames=5, sampling="all"),
        ]
    )


def test_concatenated_sources(joined, paths):
    uniform = videos(paths[2:], sampling="uniform", clips_per_video=2)
    batches = load(joined, [], batch_size=20)
    (batch,) = batches
    parts = [*range(3), *(int(uniform.label(i)) for i in (5, 0, 3)), *[9] * 4, *[8] * 5]
    assert batch.labels.tolist() == parts and batch.images.shape == (len(parts), 5, 3, 48, 64)
    halves = [uniform.path(i) for i in (5, 0, 3)]
    assert batch.paths == [*paths[:3], *halves, *[paths[0]] * 4, *[paths[1]] * 5]
    (alone,) = load(uniform, [], batch_size=20)
    assert torch.equal(batch.images[3:6], alone.images[[5, 0, 3]])
    assert batch.clips.numbers[6:10].flatten().tolist() == list(range(10, 30))
    assert batch.clips.numbers[10, 0] == 10, "seconds from the first frame"


def test_concatenated_sources_resume_share_and_replay(joined):
    with Loader(joined, CHAIN, **HOW) as loader:
        peeked = loader.peek()
        batches = iter(loader)
        first = next(batches)
        state, rest = loader.state_dict(), list(batches)
        again = [loader.replay(epoch=0, step=step) for step in range(len(loader))]
    assert torch.equal(peeked.images, first.images) and peeked.digest == first.digest
    for batch, other in zip([first, *rest], again, strict=True):
        assert torch.equal(batch.images, other.images) and batch.digest == other.digest
        assert torch.equal(batch.clips.numbers, other.clips.numbers)
    with Loader(joined, CHAIN, **HOW | {"seed": None}) as loader:
        loader.load_state_dict(state)
        assert [batch.digest for batch in loader] == [batch.digest for batch in rest]
    alone = {int(i): clip for batch in again for i, clip in zip(batch.indices, batch.images, strict=True)}
    seen = []
    for rank in range(2):
        for batch in load(joined, rank=rank, world_size=2, **HOW):
            seen += batch.indices.tolist()
            assert all(torch.equal(alone[int(i)], clip) for i, clip in zip(batch.indices, batch.images, strict=True))
    assert sorted(seen) == list(range(len(alone)))


def test_a_batch_has_one_kind_of_samples(paths, tmp_path):
    from PIL import Image

    Image.new("RGB", (64, 48)).save(tmp_path / "image.png")
    images = Files([str(tmp_path / "image.png")])
    with pytest.raises(ArgumentError, match="sources of images and of clips"):
        Loader(ConcatDataset([videos(paths), images]), CHAIN)
    with pytest.raises(ArgumentError, match="clips of 4, 5 frames"):
        Loader(ConcatDataset([videos(paths), videos(paths, frames=4)]), CHAIN)
    mixed = ConcatDataset([videos(paths, sampling="uniform"), videos(paths)])
    with pytest.raises(ArgumentError, match="sampling='random' draws other frames"):
        Loader(mixed, CHAIN, cache="decoded")
