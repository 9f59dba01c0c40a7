"""Datasets: every kind of item, thread safety by a lock, and items that are no images."""

from __future__ import annotations

import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset

from cuaug import DecodeError, Loader, LoaderError
from cuaug.sources import FromDataset
from tests.loader.pictures import numbers_of, photo, png
from tests.sources.writers import Pictures, samples, write_files

PIXELS = photo(6, 9).copy()


class Items(Dataset):
    def __init__(self, *items) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int):
        item = self.items[index]
        return item() if callable(item) else item


def encoded() -> bytes:
    out = io.BytesIO()
    Image.fromarray(PIXELS).save(out, "PNG")
    return out.getvalue()


def first(item, **options):
    return FromDataset(Items(item), **options).read(0)


# --- images ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "options"),
    [
        (encoded(), {}),
        (bytearray(encoded()), {}),
        (memoryview(encoded()), {}),
        (np.frombuffer(encoded(), np.uint8), {}),
        (torch.frombuffer(bytearray(encoded()), dtype=torch.uint8), {}),
        (PIXELS, {}),
        (np.ascontiguousarray(PIXELS[::-1])[::-1], {}),
        (torch.from_numpy(PIXELS).permute(2, 0, 1), {}),
        (torch.from_numpy(PIXELS.transpose(2, 0, 1).copy()), {}),
        (torch.from_numpy(PIXELS), {"tensor_layout": "HWC"}),
        (Image.fromarray(PIXELS), {}),
        (Image.open(io.BytesIO(encoded())), {}),
        (Image.fromarray(np.dstack([PIXELS, PIXELS[..., :1]]), "RGBA"), {}),
    ],
    ids=[
        *("bytes", "bytearray", "memoryview", "encoded array", "encoded tensor", "array", "reversed array"),
        *("CHW view", "CHW", "HWC", "PIL", "PIL file", "RGBA"),
    ],
)
def test_kinds_of_images(image, options):
    with Loader(FromDataset(Items((image, 3)), **options)) as loader:
        ((images, labels),) = loader
    np.testing.assert_array_equal(images[0].permute(1, 2, 0).numpy(), PIXELS)
    assert labels.tolist() == [3]


def test_pillow_images_of_more_bits():
    """As from files: 16 bits become 8, and 32 bits have no range."""
    deep = Image.fromarray(np.arange(54, dtype=np.uint16).reshape(6, 9) * 1200)
    assert first((deep, 0))[0][..., 0].tolist() == (np.asarray(deep) >> 8).tolist()
    for mode in ("I", "F"):
        loader = Loader(Items((Image.new(mode, (9, 6)), 0)))
        with loader, pytest.raises(DecodeError, match=r"'Items\[0\]' \(sample 0\): 32-bit"):
            next(iter(loader))


@pytest.mark.parametrize("as_type", [str, Path])
def test_paths(tmp_path, as_type):
    (tmp_path / "a.png").write_bytes(encoded())
    with Loader(Items((as_type(tmp_path / "a.png"), 3))) as loader:
        ((images, _),) = loader
    np.testing.assert_array_equal(images[0].permute(1, 2, 0).numpy(), PIXELS)


def test_what_hugging_face_has_not_decoded(tmp_path):
    """Its Image(decode=False) makes {"bytes", "path"} of an image: either, or bytes and the name that they had."""
    path = str(tmp_path / "a.png")
    assert first({"image": {"bytes": encoded(), "path": None}, "label": 4}) == (encoded(), 4)
    assert first({"image": {"bytes": encoded(), "path": "a.png"}, "label": 4}) == (encoded(), 4)
    assert first({"image": {"bytes": None, "path": path}, "label": 4}) == (path, 4)
    with pytest.raises(LoaderError, match="has as its image a None"):
        first({"image": {"bytes": None, "path": None}, "label": 4})


@pytest.mark.parametrize(
    "image",
    [PIXELS[..., 0], PIXELS[..., :1], torch.from_numpy(PIXELS[..., 0]), torch.from_numpy(PIXELS[..., 0])[None]],
    ids=["H W", "H W 1", "tensor H W", "tensor 1 H W"],
)
def test_gray(image):
    data, _ = first((image, 0))
    assert data.reshape(6, 9).tolist() == PIXELS[..., 0].tolist() and isinstance(data, np.ndarray)


@pytest.mark.parametrize(
    ("image", "what", "hint"),
    [
        (torch.zeros(3, 4, 5), r"Tensor of shape \(3, 4, 5\) and type torch.float32", "without ToTensor"),
        (PIXELS / 255, r"ndarray of shape \(6, 9, 3\) and type float64", "without ToTensor"),
        (PIXELS.transpose(2, 0, 1), r"ndarray of shape \(3, 6, 9\) and type uint8", r"image.transpose\(1, 2, 0\)$"),
        (np.dstack([PIXELS, PIXELS]), r"ndarray of shape \(6, 9, 6\)", ""),
        (torch.from_numpy(PIXELS), r"Tensor of shape \(6, 9, 3\) and type torch.uint8", 'tensor_layout="HWC"'),
        (torch.from_numpy(PIXELS).long(), r"Tensor of shape \(6, 9, 3\) and type torch.int64", ""),
        (torch.zeros(6, 9, 4, dtype=torch.uint8), r"Tensor of shape \(6, 9, 4\)", ""),
        (PIXELS[None], r"ndarray of shape \(1, 6, 9, 3\)", ""),
        (None, "None", ""),
        (5, "5", ""),
    ],
    ids=[
        *("float tensor", "float array", "CHW array", "6 channels", "HWC tensor", "integers", "4 channels", "stack"),
        *("None", "number"),
    ],
)
def test_what_is_no_image(image, what, hint):
    """It is named as the Dataset gave it; how to change it is said where that is known."""
    with pytest.raises(LoaderError, match=rf"item 0 of Items has as its image a {what}.*{hint}") as caught:
        first((image, 0))
    said = str(caught.value)
    assert [text in said for text in ("ToTensor", "tensor_layout", "transpose")] == [
        text in hint for text in ("ToTensor", "tensor_layout", "transpose")
    ]
    with Loader(Items((image, 0)), on_error="skip") as loader, pytest.raises(LoaderError):
        next(iter(loader))


def test_a_tensor_that_is_not_as_tensor_layout_says():
    with pytest.raises(
        LoaderError, match=r'Tensor of shape \(3, 6, 9\) .*: FromDataset\(\.\.\., tensor_layout="CHW"\)$'
    ):
        first((torch.from_numpy(PIXELS).permute(2, 0, 1), 0), tensor_layout="HWC")


# --- labels ----------------------------------------------------------------------------------------------------------


def test_labels():
    assert first((b"i", 7)) == first([b"i", 7]) == (b"i", 7)
    assert first((b"i", 7, "x", 2.5)) == (b"i", (7, "x", 2.5))
    assert first((b"i",)) == first(b"i") == (b"i", 0)
    assert first((b"i", (1, 2))) == (b"i", (1, 2))
    source = FromDataset(Items(b"a", b"b"))
    assert source.read(1) == (b"b", 1)


def test_extra_fields_in_a_batch():
    items = [(png(i), i, f"name {i}", {"box": [i, i + 1]}) for i in range(3)]
    with Loader(Items(*items), batch_size=3) as loader:
        ((images, (numbers, names, boxes)),) = loader
    assert numbers_of(images) == numbers.tolist() == [0, 1, 2]
    assert names == ["name 0", "name 1", "name 2"] and boxes["box"].tolist() == [[0, 1], [1, 2], [2, 3]]


def test_dicts():
    item = {"image": b"i", "label": 4, "name": "x"}
    assert first(item) == (b"i", 4)
    assert first(item, label=["label", "name"]) == (b"i", {"label": 4, "name": "x"})
    assert first(item, label=None) == (b"i", 0)
    assert first({"img": b"i", "fine": 4}, image="img", label="fine") == (b"i", 4)
    with pytest.raises(LoaderError, match=r"item 0 of Items has no 'label', but 'img', 'fine': say which are"):
        first({"img": b"i", "fine": 4}, image="img")


# --- Datasets --------------------------------------------------------------------------------------------------------


def test_what_torch_makes_of_datasets(tmp_path):
    write_files(tmp_path, samples())
    pictures = Pictures(tmp_path, "pillow")
    for dataset, want in (
        (Subset(pictures, [5, 2]), [5, 2]),
        (ConcatDataset([pictures, pictures]), list(range(12)) * 2),
    ):
        with Loader(dataset, batch_size=len(want)) as loader:
            ((images, labels),) = loader
        assert numbers_of(images) == want and labels.tolist() == [7 * i % 11 for i in want]
    stack = torch.stack([torch.from_numpy(sample.pixels).permute(2, 0, 1) for sample in samples()])
    with Loader(TensorDataset(stack, torch.arange(12)), batch_size=12) as loader:
        ((images, labels),) = loader
    assert numbers_of(images) == labels.tolist() == list(range(12))


def test_anything_with_len_and_items():
    class Plain:
        classes = ("ant", "bee")

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return png(index), index

    with Loader(Plain(), batch_size=2) as loader:
        ((images, _),) = loader
    assert numbers_of(images) == [0, 1] and loader.classes == ["ant", "bee"]
    assert loader.source.path(1) == "Plain[1]"


def test_datasets_that_do_not_do():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([(b"i", 0)])

    class Sized(Stream):
        def __len__(self):
            return 1

    with pytest.raises(LoaderError, match="which Stream has not; an iterable one has no order"):
        FromDataset(Stream())
    with pytest.raises(LoaderError, match="Sized is iterable only"):
        FromDataset(Sized())
    with pytest.raises(LoaderError, match="Items is empty"):
        FromDataset(Items())
    with pytest.raises(LoaderError, match="tensor_layout is 'CHW' or 'HWC', not 'NCHW'"):
        FromDataset(Items(b""), tensor_layout="NCHW")


def test_errors_of_the_dataset(tmp_path):
    """A damaged file is a sample's fault, also if PIL finds it only when it decodes; a mistake in the code is not."""
    path = tmp_path / "cut.jpg"
    Image.fromarray(photo(60, 60)).save(path)
    path.write_bytes(path.read_bytes()[:-300])
    dataset = Items((png(0), 0), lambda: (Image.open(path), 1), lambda: (Path("/no/such/file").read_bytes(), 2))
    with Loader(dataset, batch_size=3, on_error="skip") as loader:
        ((_, labels),) = loader
        assert labels.tolist() == [0] and loader.stats().failed == 2
    with (
        Loader(dataset, batch_size=3) as loader,
        pytest.raises(DecodeError, match=r"'Items\[1\]' \(sample 1\).*truncated"),
    ):
        next(iter(loader))
    with Loader(Items(lambda: {}["no key"]), on_error="skip") as loader, pytest.raises(KeyError, match="no key"):
        next(iter(loader))


class Careless(Dataset):
    """Keeps the place that it reads from, as one with an open file does."""

    def __init__(self) -> None:
        self.place = 0
        self.most = self.inside = 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int):
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.place = index
        time.sleep(0.0005)
        item = png(self.place), index
        self.inside -= 1
        return item


def test_lock():
    with ThreadPoolExecutor(8) as pool:
        free, locked = FromDataset(Careless()), FromDataset(Careless(), lock=True)
        mixed = list(pool.map(free.read, range(64)))
        assert free.dataset.most > 1 and mixed != [(png(i), i) for i in range(64)], "this test sees what a lock is for"
        assert list(pool.map(locked.read, range(64))) == [(png(i), i) for i in range(64)] and locked.dataset.most == 1


def test_a_lock_is_let_go_after_an_error():
    source = FromDataset(Items(lambda: {}["x"], (b"i", 1)), lock=True)
    with pytest.raises(KeyError):
        source.read(0)
    done = []
    thread = threading.Thread(target=lambda: done.append(source.read(1)))
    thread.start()
    thread.join(5)
    assert done == [(b"i", 1)]


# --- fingerprints ----------------------------------------------------------------------------------------------------


def test_a_fingerprint_is_what_the_dataset_knows_of_itself(tmp_path):
    class Known(Items):
        def fingerprint(self):
            return "abc"

    assert FromDataset(Known(b"")).fingerprint() == "abc"

    def of(targets, cls=Items, count=2, classes=None):
        dataset = cls(*[b""] * count)
        dataset.targets, dataset.classes = targets, classes
        return FromDataset(dataset).fingerprint()

    class Other(Items):
        pass

    prints = [of([1, 2]), of([1, 3]), of([1, 2], Other), of([1, 2], count=3), of([1, 2], classes=["a", "b"])]
    assert len(set(prints)) == len(prints) and of(None) is None
    assert of(torch.tensor([1, 2])) == of(np.array([1, 2])) == prints[0]


def test_a_fingerprint_of_parts_of_datasets(tmp_path):
    write_files(tmp_path, samples())
    pictures, nothing_known = Pictures(tmp_path, "path"), TensorDataset(torch.zeros(12, 3, 4, 5))

    def of(dataset) -> str | None:
        return FromDataset(dataset).fingerprint()

    parts = [Subset(pictures, [5, 2]), Subset(pictures, [2, 5]), Subset(Subset(pictures, [5, 2, 3]), [0, 1])]
    whole = [pictures, ConcatDataset([pictures, pictures]), ConcatDataset([pictures, parts[0]])]
    assert len({of(dataset) for dataset in parts + whole}) == 6 and None not in map(of, parts + whole)
    assert of(Subset(pictures, torch.tensor([5, 2]))) == of(parts[0])
    for dataset in (nothing_known, Subset(nothing_known, [5, 2]), ConcatDataset([pictures, nothing_known])):
        assert of(dataset) is None
        with Loader(dataset, batch_size=2) as loader:
            loader.load_state_dict(loader.state_dict())


def test_an_origin_is_of_files_or_of_a_dataset_that_knows_itself(tmp_path):
    write_files(tmp_path, samples())
    pictures, known, labelled = Pictures(tmp_path, "path"), Items(b""), Items(b"")
    known.fingerprint, labelled.targets = lambda: "abc", [1]
    assert str(tmp_path) in FromDataset(Subset(pictures, [5])).cache_key()
    assert FromDataset(known).cache_key() != FromDataset(known, image="right").cache_key()
    assert FromDataset(labelled).cache_key() is FromDataset(ConcatDataset([pictures, labelled])).cache_key() is None
    assert str(tmp_path) in FromDataset(ConcatDataset([pictures, known])).cache_key()
