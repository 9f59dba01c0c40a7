"""Datasets: every kind of item, the lock, and items that are no images."""

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
from tests.support.codec.encoded_images import encode
from tests.support.loader.further_pictures import photo, png
from tests.support.sources.loading import load, load_numbers
from tests.support.sources.writers import ImageDataset, samples, write_files

PIXELS = photo(6, 9).copy()
ENCODED = encode(Image.fromarray(PIXELS), "PNG")


class Items(Dataset):
    def __init__(self, *items) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int):
        item = self.items[index]
        return item() if callable(item) else item


def read_first(item, **options):
    return FromDataset(Items(item), **options).read(0)


IMAGES = {
    "bytes": ENCODED,
    "bytearray": bytearray(ENCODED),
    "memoryview": memoryview(ENCODED),
    "encoded array": np.frombuffer(ENCODED, np.uint8),
    "encoded tensor": torch.frombuffer(bytearray(ENCODED), dtype=torch.uint8),
    "array": PIXELS,
    "reversed array": np.ascontiguousarray(PIXELS[::-1])[::-1],
    "CHW view": torch.from_numpy(PIXELS).permute(2, 0, 1),
    "CHW": torch.from_numpy(PIXELS.transpose(2, 0, 1).copy()),
    "PIL": Image.fromarray(PIXELS),
    "PIL file": Image.open(io.BytesIO(ENCODED)),
    "RGBA": Image.fromarray(np.dstack([PIXELS, PIXELS[..., :1]]), "RGBA"),
}


@pytest.mark.parametrize("image", IMAGES.values(), ids=IMAGES)
def test_kinds_of_images(image):
    images, labels = load(FromDataset(Items((image, 3))))
    np.testing.assert_array_equal(images[0].permute(1, 2, 0).numpy(), PIXELS)
    assert labels.tolist() == [3]


def test_pillow_images_with_more_bits():
    """As from files, they are refused; 32 bits have no fixed range."""
    for mode, reason in {"I;16": r'16-bit.*mode="unchanged"', "I": "32-bit", "F": "32-bit"}.items():
        with pytest.raises(DecodeError, match=rf"'Items\[0\]' \(sample 0\): .*{reason}"):
            load(Items((Image.new(mode, (9, 6)), 0)))


def test_paths(tmp_path):
    (tmp_path / "a.png").write_bytes(ENCODED)
    images = load(Items((tmp_path / "a.png", 3))).images
    np.testing.assert_array_equal(images[0].permute(1, 2, 0).numpy(), PIXELS)


def test_undecoded_hugging_face_images(tmp_path):
    """Image(decode=False) gives {"bytes", "path"}: one of them, or both with the original name."""
    path = str(tmp_path / "a.png")
    assert read_first({"image": {"bytes": ENCODED, "path": None}, "label": 4}) == (ENCODED, 4)
    assert read_first({"image": {"bytes": ENCODED, "path": "a.png"}, "label": 4}) == (ENCODED, 4)
    assert read_first({"image": {"bytes": None, "path": path}, "label": 4}) == (path, 4)
    with pytest.raises(LoaderError, match="has the image None"):
        read_first({"image": {"bytes": None, "path": None}, "label": 4})


@pytest.mark.parametrize(
    "image",
    [PIXELS[..., 0], PIXELS[..., :1], torch.from_numpy(PIXELS[..., 0]), torch.from_numpy(PIXELS[..., 0])[None]],
    ids=["H W", "H W 1", "tensor H W", "tensor 1 H W"],
)
def test_gray(image):
    data, _ = read_first((image, 0))
    assert data.reshape(6, 9).tolist() == PIXELS[..., 0].tolist() and isinstance(data, np.ndarray)


@pytest.mark.parametrize(
    ("image", "description", "hint"),
    [
        (torch.zeros(3, 4, 5), r"Tensor of shape \(3, 4, 5\) and type torch.float32", "remove ToTensor"),
        (PIXELS / 255, r"ndarray of shape \(6, 9, 3\) and type float64", "remove ToTensor"),
        (PIXELS.transpose(2, 0, 1), r"ndarray of shape \(3, 6, 9\) and type uint8", r"image.transpose\(1, 2, 0\)$"),
        (np.dstack([PIXELS, PIXELS]), r"ndarray of shape \(6, 9, 6\)", ""),
        (torch.from_numpy(PIXELS), r"Tensor of shape \(6, 9, 3\) and type torch.uint8", r"image.permute\(2, 0, 1\)$"),
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
def test_invalid_images_are_refused(image, description, hint):
    """The message describes the item, and the fix if it is known."""
    with pytest.raises(LoaderError, match=rf"item 0 of Items has the image {description}.*{hint}") as caught:
        read_first((image, 0))
    for text in ("ToTensor", "permute", "transpose"):
        assert (text in str(caught.value)) == (text in hint)
    with pytest.raises(LoaderError):
        load(Items((image, 0)), on_error="skip")


def test_labels():
    assert read_first((b"i", 7)) == read_first([b"i", 7]) == (b"i", 7)
    assert read_first((b"i", 7, "x", 2.5)) == (b"i", (7, "x", 2.5))
    assert read_first((b"i",)) == read_first(b"i") == (b"i", 0)
    assert read_first((b"i", (1, 2))) == (b"i", (1, 2))
    source = FromDataset(Items(b"a", b"b"))
    assert source.read(1) == (b"b", 1)


def test_dicts():
    item = {"image": b"i", "label": 4, "name": "x"}
    assert read_first(item) == (b"i", 4)
    assert read_first(item, label=["label", "name"]) == (b"i", {"label": 4, "name": "x"})
    assert read_first(item, label=None) == (b"i", 0)
    assert read_first({"img": b"i", "fine": 4}, image="img", label="fine") == (b"i", 4)
    with pytest.raises(LoaderError, match=r"item 0 of Items has no 'label'; it has 'img', 'fine': name the image"):
        read_first({"img": b"i", "fine": 4}, image="img")


def test_torch_subsets_concatenations_and_tensor_datasets(tmp_path):
    write_files(tmp_path, samples())
    photos = ImageDataset(tmp_path, "pillow")
    for dataset, expected in ((Subset(photos, [5, 2]), [5, 2]), (ConcatDataset([photos, photos]), list(range(12)) * 2)):
        assert load_numbers(dataset) == (expected, [7 * i % 11 for i in expected])
    stack = torch.stack([torch.from_numpy(sample.pixels).permute(2, 0, 1) for sample in samples()])
    assert load_numbers(TensorDataset(stack, torch.arange(12))) == (list(range(12)), list(range(12)))


def test_invalid_datasets_are_refused():
    class Sized(IterableDataset):
        def __iter__(self):
            return iter([])

        def __len__(self):
            return 1

    with pytest.raises(LoaderError, match="Sized is only iterable"):
        FromDataset(Sized())
    with pytest.raises(LoaderError, match="dataset is empty: Items"):
        FromDataset(Items())


def test_errors_of_the_dataset(tmp_path):
    """A damaged file costs one sample, even if PIL notices late; a bug in the code ends the iteration."""
    path = tmp_path / "cut.jpg"
    Image.fromarray(photo(60, 60)).save(path)
    path.write_bytes(path.read_bytes()[:-300])
    dataset = Items((png(0), 0), lambda: (Image.open(path), 1), lambda: (Path("/no/such/file").read_bytes(), 2))
    with Loader(dataset, batch_size=3, on_error="skip") as loader:
        ((_, labels),) = loader
        assert labels.tolist() == [0] and loader.stats().failed == 2
    with pytest.raises(DecodeError, match=r"'Items\[1\]' \(sample 1\).*truncated"):
        load(dataset)
    with pytest.raises(KeyError, match="no key"):
        load(Items(lambda: {}["no key"]), on_error="skip")


class Careless(Dataset):
    """Keeps a read position, like a Dataset with an open file."""

    def __init__(self) -> None:
        self.position = 0
        self.max_inside = self.inside = 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int):
        self.inside += 1
        self.max_inside = max(self.max_inside, self.inside)
        self.position = index
        time.sleep(0.0005)
        item = png(self.position), index
        self.inside -= 1
        return item


def test_lock():
    with ThreadPoolExecutor(8) as pool:
        unlocked, locked = FromDataset(Careless()), FromDataset(Careless(), lock=True)
        mixed = list(pool.map(unlocked.read, range(64)))
        expected = [(png(i), i) for i in range(64)]
        assert unlocked.dataset.max_inside > 1 and mixed != expected, "without a lock, this Dataset fails"
        assert list(pool.map(locked.read, range(64))) == expected and locked.dataset.max_inside == 1


def test_the_lock_is_released_after_an_error():
    source = FromDataset(Items(lambda: {}["x"], (b"i", 1)), lock=True)
    with pytest.raises(KeyError):
        source.read(0)
    done = []
    thread = threading.Thread(target=lambda: done.append(source.read(1)))
    thread.start()
    thread.join(600)
    assert done == [(b"i", 1)]


def test_the_fingerprint_comes_from_the_dataset(tmp_path):
    class Known(Items):
        def fingerprint(self):
            return "abc"

    assert FromDataset(Known(b"")).fingerprint() == "abc"

    def fingerprint_of(targets, cls=Items, count=2, classes=None):
        dataset = cls(*[b""] * count)
        dataset.targets, dataset.classes = targets, classes
        return FromDataset(dataset).fingerprint()

    class Other(Items):
        pass

    fingerprints = [
        *(fingerprint_of([1, 2]), fingerprint_of([1, 3]), fingerprint_of([1, 2], Other)),
        *(fingerprint_of([1, 2], count=3), fingerprint_of([1, 2], classes=["a", "b"])),
    ]
    assert len(set(fingerprints)) == len(fingerprints) and fingerprint_of(None) is None
    assert fingerprint_of(torch.tensor([1, 2])) == fingerprint_of(np.array([1, 2])) == fingerprints[0]


def test_fingerprints_of_subsets_and_concatenations(tmp_path):
    write_files(tmp_path, samples())
    photos, unknown = ImageDataset(tmp_path, "path"), TensorDataset(torch.zeros(12, 3, 4, 5))

    def fingerprint_of(dataset) -> str | None:
        return FromDataset(dataset).fingerprint()

    subsets = [Subset(photos, [5, 2]), Subset(photos, [2, 5]), Subset(Subset(photos, [5, 2, 3]), [0, 1])]
    whole = [photos, ConcatDataset([photos, photos]), ConcatDataset([photos, subsets[0]])]
    fingerprints = list(map(fingerprint_of, subsets + whole))
    assert len(set(fingerprints)) == 6 and None not in fingerprints
    assert fingerprint_of(Subset(photos, torch.tensor([5, 2]))) == fingerprints[0]
    for dataset in (unknown, Subset(unknown, [5, 2]), ConcatDataset([photos, unknown])):
        assert fingerprint_of(dataset) is None
        with Loader(dataset, batch_size=2) as loader:
            loader.load_state_dict(loader.state_dict())


def test_a_cache_key_needs_files_or_a_fingerprint(tmp_path):
    write_files(tmp_path, samples())
    photos, known, labeled = ImageDataset(tmp_path, "path"), Items(b""), Items(b"")
    known.fingerprint, labeled.targets = lambda: "abc", [1]
    assert str(tmp_path) in FromDataset(Subset(photos, [5])).cache_key()
    assert FromDataset(known).cache_key() != FromDataset(known, image="right").cache_key()
    assert FromDataset(labeled).cache_key() is FromDataset(ConcatDataset([photos, labeled])).cache_key() is None
    assert str(tmp_path) in FromDataset(ConcatDataset([photos, known])).cache_key()
