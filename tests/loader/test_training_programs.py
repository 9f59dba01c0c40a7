"""The attributes of DataLoader that public training programs read, in their own lines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

from cuaug import Loader, sources
from cuaug import transforms as T
from tests.support.loader.further_pictures import Memory, png

CHAIN = [T.RandomHorizontalFlip()]


def photos(**settings: Any) -> Loader:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 0, "device": "cpu", "threads": 2}
    return Loader(Memory(18), CHAIN, **options | settings)


class Encoded(Dataset):
    """A user's Dataset, with an attribute that a program reads back."""

    coco = "an index"

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        return png(index), index


def test_dataset_is_what_a_loader_was_given():
    dataset = Encoded()
    with Loader(dataset, device="cpu") as loader:
        assert loader.dataset is dataset
    source = sources.FromIterable([(png(0), 0)], 1)
    with Loader(source, device="cpu") as loader:
        assert loader.dataset is loader.source is source
    with Loader(["a.png", "b.png"], device="cpu") as loader:
        assert loader.dataset is loader.source and len(loader.dataset) == 2
        with pytest.raises(AttributeError):
            loader.dataset = dataset


@pytest.mark.parametrize("last_batch", ["partial", "drop", "pad"])
@pytest.mark.parametrize("world_size", [1, 2])
def test_imagenets_main(last_batch, world_size):
    """pytorch/examples, imagenet/main.py: `validate` loads what a DistributedSampler leaves out; here, nothing."""
    for rank in range(world_size):
        with photos(last_batch=last_batch, rank=rank, world_size=world_size) as val_loader:
            is_partial = len(val_loader.sampler) * world_size < len(val_loader.dataset)
            assert len(val_loader) + is_partial == len(val_loader)
            assert val_loader.drop_last == (last_batch == "drop") and val_loader.pin_memory is False
            val_loader.sampler.set_epoch(3)
            assert val_loader.epoch == 3


def test_torchvisions_references():
    """references/classification/train.py and segmentation/train.py warn at the end of `evaluate`."""
    with photos() as data_loader:
        num_processed_samples = sum(len(images) for images, _ in data_loader)
        assert hasattr(data_loader.dataset, "__len__")
        assert len(data_loader.dataset) == num_processed_samples == 18
        assert math.ceil(len(data_loader.dataset) / data_loader.batch_size) == len(data_loader)


def test_timm():
    """train.py sets the sampler's epoch; PrefetchLoader passes on `sampler` and `dataset`."""
    with photos(last_batch="drop") as loader_train:
        assert len(loader_train.dataset) // loader_train.batch_size == len(loader_train)
        for epoch in (5, 6):
            if hasattr(loader_train.sampler, "set_epoch"):
                loader_train.sampler.set_epoch(epoch)
            assert {batch.epoch for batch in loader_train} == {epoch}


def test_ultralytics():
    """engine/trainer.py: iterations for the optimizer, a line about workers, and what ends Mosaic at `close_mosaic`."""
    with photos() as train_loader:
        assert math.ceil(len(train_loader.dataset) / max(train_loader.batch_size, 64)) * 3 == 3
        assert train_loader.num_workers * 1 == train_loader.threads == 2
        assert not hasattr(train_loader.dataset, "mosaic") and not hasattr(train_loader.dataset, "close_mosaic")
        pbar = enumerate(train_loader)
        train_loader.reset()
        assert [(i, batch.epoch) for i, batch in pbar] == [(i, 0) for i in range(5)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_lightnings_overfit_batches(shuffle):
    """`_resolve_overfit_batches` would make a DataLoader of `dataset`, unless the sampler is a SequentialSampler."""
    with photos(shuffle=shuffle) as loader:
        assert isinstance(loader.sampler, SequentialSampler) and isinstance(loader.batch_sampler, SequentialSampler)
        assert not isinstance(loader.sampler, (RandomSampler, BatchSampler))
        assert not hasattr(loader, "worker_init_fn"), "Lightning would set it"


class SkipBatchSampler(BatchSampler):
    """Accelerate's, as `skip_first_batches` uses it."""

    def __init__(self, batch_sampler: Any, skip_batches: int) -> None:
        self.batch_sampler, self.skip_batches = batch_sampler, skip_batches

    def __iter__(self) -> Iterator[list[int]]:
        for index, samples in enumerate(self.batch_sampler):
            if index >= self.skip_batches:
                yield samples


def test_accelerates_skip_first_batches_is_refused():
    """It makes a DataLoader of `dataset`, whose samples have no transforms: an error, not other batches."""
    with Loader(Encoded(), CHAIN, batch_size=2, device="cpu") as loader:
        for sampler in ({"batch_sampler": SkipBatchSampler(loader.batch_sampler, 1)}, {"sampler": loader.sampler}):
            skipped: DataLoader[Any] = DataLoader(loader.dataset, pin_memory=loader.pin_memory, **sampler)
            with pytest.raises(TypeError, match=r"leave out the transforms\. .*to skip batches, use .*load_state_dict"):
                next(iter(skipped))


def test_torchvisions_video_reference(tmp_path):
    """references/video_classification/train.py: `evaluate` counts the videos and the classes, not the clips."""
    pytest.importorskip("av")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.mp4").write_bytes(b"")
    videos = sources.Videos(tmp_path, frames=2, clips_per_video=3)
    with Loader(videos, device="cpu") as data_loader:
        assert len(data_loader.dataset.samples) == len(data_loader.dataset.classes) == 2
        assert data_loader.dataset.samples[1] == (str(tmp_path / "b" / "0.mp4"), 1)
        assert len(data_loader.dataset) == 6


def test_an_image_folders_samples():
    with Loader([("a.png", 3), ("b.png", 5)], device="cpu") as loader:
        assert loader.dataset.samples == [("a.png", 3), ("b.png", 5)]
