"""Loader output: every sample once, in order, with its label."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from cuaug import DecodeOptions, Loader, LoaderError, collate
from cuaug import transforms as T
from cuaug.profiling.bottleneck import stages_of
from tests.support.codec.encoded_images import FORMATS, as_pillow, photo, tagged_files
from tests.support.loader.further_pictures import (
    Arrays,
    Bytes,
    Labeled,
    Memory,
    assert_epoch_raises,
    epoch_of,
    numbers_of,
    png,
)

# --- order and labels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", [(), range(0, 5000, 7)], ids=["whole", "with skipping"])
def test_labels_follow_their_images(damaged, caplog):
    caplog.set_level(logging.CRITICAL, logger="cuaug")
    count = 5000
    options = {"batch_size": 33, "shuffle": True, "threads": 8, "prefetch": 4, "on_error": "skip"}
    with Loader(Memory(count, damaged, slow=1e-4), **options) as loader:
        seen = []
        for images, labels in loader:
            assert numbers_of(images) == labels.tolist()
            seen += labels.tolist()
        stats = loader.stats()
    assert sorted(seen) == sorted(set(range(count)) - set(damaged)) and seen != sorted(seen)
    assert (stats.samples, stats.failed) == (len(seen), len(damaged))


# --- sources ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_type", [str, Path])
def test_a_directory_of_class_folders(tmp_path, as_type):
    """Two classes, nested folders, upper-case suffixes, and files that are not images."""
    for number, name in enumerate(["zebra/a.png", "ant/nested/b.PNG", "ant/c.png", "zebra/z/d.png"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    (tmp_path / "ant" / "notes.txt").write_text("not a picture")
    (tmp_path / "readme.md").write_text("not a class")
    with Loader(as_type(tmp_path), batch_size=4) as loader:
        ((images, labels),) = loader
    assert loader.classes == ["ant", "zebra"]
    assert numbers_of(images) == [2, 1, 0, 3] and labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ([3, 1], torch.tensor([3, 1])),
        ([0.5, 1.0], torch.tensor([0.5, 1.0], dtype=torch.float64)),
        ([True, False], torch.tensor([True, False])),
        ([[1, 0], [0, 1]], torch.tensor([[1, 0], [0, 1]])),
        ([np.float32(2), np.float32(3)], torch.tensor([2.0, 3.0])),
        ([torch.tensor(4), torch.tensor(5)], torch.tensor([4, 5])),
        ([torch.tensor([4, 1]), torch.tensor([5, 1])], torch.tensor([[4, 1], [5, 1]])),
    ],
    ids=["int", "float", "bool", "list", "float32", "tensor", "vector"],
)
def test_labels_that_make_a_tensor(labels, want):
    ((_, got),) = epoch_of(Labeled(*labels, attribute="labels"), batch_size=2)
    assert got.dtype == want.dtype and got.cpu().equal(want)


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "labels", [[2**63 + 1, 3], [[3, 2**63], [-1, 1]], [np.array([2**63], np.uint64), np.array([1])]]
)
def test_integers_that_would_become_floats_are_refused(labels):
    """Floats would lose their last digits."""
    first = re.escape(repr(labels[0]))
    with pytest.raises(LoaderError, match=f"are integers .*{first} the first; float64 would lose digits"):
        collate(labels)


@pytest.mark.cpu_only
def test_the_dtype_of_labels_follows_the_batch():
    for labels, dtype in [([2**62, 3], torch.int64), ([1, 0.5], torch.float64), ([True, 3], torch.int64)]:
        got = collate(labels)
        assert got.dtype == dtype and got.tolist() == labels
    assert collate([[], []]).shape == (2, 0)


@pytest.mark.cpu_only
def test_lists_of_text_are_copied():
    labels = [["cat", ["dog"]], ["ant"]]
    got, (more, _) = collate(labels), collate([(label, 3) for label in labels])
    assert got == more == labels
    for copy in (got, more):
        copy[0].append("x")
        copy[0][1].append("x")
    assert labels == [["cat", ["dog"]], ["ant"]]


@pytest.mark.cpu_only
def test_a_rank_without_samples_reports_its_empty_batch():
    """Without damaged samples."""
    options = {"batch_size": 2, "collate_fn": len, "rank": 1, "world_size": 2, "seed": 0}
    assert_epoch_raises(LoaderError, "collate_fn returned 1, .*fewer samples .* than ranks", Memory(1), **options)


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize(
    "view",
    [lambda a: a[..., ::-1], lambda a: a[::-1], lambda a: a[:, ::-1], lambda a: a.copy("F"), lambda a: a[::2]],
    ids=["channels reversed", "rows reversed", "columns reversed", "Fortran's order", "every second row"],
)
def test_arrays_of_any_strides(view, width):
    array = view(photo(8, 5)[:, :width].copy())
    ((images, _),) = epoch_of(Arrays(array))
    np.testing.assert_array_equal(images[0].permute(1, 2, 0).cpu().numpy(), array)


# --- files as they are -----------------------------------------------------------------------------------------------


@pytest.mark.cpu_only
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_by_default(orientation):
    data, upright = (tagged_files(value)["jpeg"] for value in (orientation, 1))
    for apply_exif, want in ((True, as_pillow(data)), (False, as_pillow(upright))):
        ((images, _),) = epoch_of(Bytes(data), decode=DecodeOptions(apply_exif=apply_exif), threads=1)
        np.testing.assert_array_equal(images[0].permute(1, 2, 0).cpu().numpy(), want)


@pytest.mark.cpu_only
def test_images_of_every_mode_become_rgb():
    files, options = FORMATS.values(), DecodeOptions(lossy=True)  # the first page or frame of several
    (batch,) = epoch_of(Bytes(*files), batch_size=len(files), stack=False, threads=2, decode=options)
    for image, data in zip(batch.images, files, strict=True):
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), as_pillow(data))


# --- statistics and memory -------------------------------------------------------------------------------------------


def test_stats():
    with Loader(Memory(20, damaged=[3]), batch_size=6, on_error="skip") as loader:
        assert loader.stats().samples == 0
        list(loader)
        stats = loader.stats()
        assert (stats.samples, stats.batches, stats.failed) == (19, 4, 1)
        assert set(stats.seconds) == set(stages_of(loader.device.type))
        assert all(value >= 0 for value in stats.seconds.values())
        assert min(stats.seconds[stage] for stage in ("parse", "plan", "decode", "augment", "finish")) > 0
        assert "19 samples in 4 batches, 1 failed" in str(stats) and "decode" in str(stats)
        assert stats.begun >= 20 and stats.decoded_by == {"cpu": 19} and sum(stats.ready) == 3
        assert str(stats).startswith(f"bottleneck: {stats.bottleneck}\n")
        list(loader)
        assert loader.stats().batches == 8 and stats.batches == 4, "stats() is a snapshot of the totals"


@pytest.mark.parametrize(
    "part",
    [
        lambda images: images[1],
        lambda images: images[:, 0, 3],
        lambda images: images.cpu().numpy()[2],
        lambda images: np.from_dlpack(images)[0],
        lambda images: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(images))[3],
        lambda images: memoryview(images.cpu().numpy()),
        lambda images: images.untyped_storage(),
    ],
    ids=["image", "row", "NumPy", "DLPack to NumPy", "DLPack to torch", "buffer", "storage"],
)
@pytest.mark.cpu_only
def test_a_view_of_a_batch_keeps_its_memory(part):
    """Later batches reuse memory, but not while a reference exists."""

    def content(seen) -> bytes:
        return bytes(seen) if isinstance(seen, torch.UntypedStorage) else np.asarray(seen).tobytes()

    with Loader(Memory(64), T.Resize((16, 16)), batch_size=4, threads=2, prefetch=2) as loader:
        kept = []
        for images, _ in loader:
            seen = part(images)
            kept.append((seen, content(seen)))
            del images, seen
    assert all(content(seen) == was for seen, was in kept)
    assert len({was for _, was in kept}) == 16
