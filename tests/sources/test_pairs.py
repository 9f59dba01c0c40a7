"""Images and masks in two folders."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cuaug import Loader, LoaderError
from cuaug import transforms as T
from cuaug.sources import Pairs, Source
from tests.support.sources.loading import read_all

H, W = 12, 16
NAMES = ["a/1", "a/2.left", "b/1", "c"]


def write(folder: Path, names: list[str], *, mode: str = "RGB", ending: str = ".png") -> None:
    for number, name in enumerate(sorted(names)):
        path = folder / f"{name}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, (W, H), number * 20 if mode != "RGB" else (number * 20, 0, 0)).save(path)


def pairs(
    folder: Path, images: Any = NAMES, masks: Any = NAMES, endings: Any = (".png", ".png"), **options: Any
) -> Pairs:
    write(folder / "images", images, ending=endings[0])
    write(folder / "masks", masks, mode="L", ending=endings[1])
    return Pairs(folder / "images", str(folder / "masks"), **options)


def test_pairs_by_name(tmp_path):
    source = pairs(tmp_path, endings=(".bmp", ".png"))
    assert isinstance(source, Source) and len(source) == 4
    for i, name in enumerate(sorted(NAMES)):
        path, label = source.read(i)
        assert path == source.path(i) == str(tmp_path / "images" / f"{name}.bmp")
        assert label == source.label(i) == {"mask": str(tmp_path / "masks" / f"{name}.png")}
    assert repr(source) == f"Pairs(4 samples, the first {source.path(0)!r})"


@pytest.mark.parametrize("cache", [None, "decoded"])
def test_in_a_loader(tmp_path, cache):
    source = pairs(tmp_path)
    with Loader(source, [T.RandomCrop(8)], batch_size=2, shuffle=True, device="cpu", cache=cache) as loader:
        for _ in range(2):
            for batch in loader:
                assert batch.labels["mask"].shape == (2, 8, 8)
                for image, mask, index in zip(*(batch.images, batch.labels["mask"], batch.indices), strict=True):
                    assert (image[0] == index * 20).all() and (mask == index * 20).all()


def test_suffixes(tmp_path):
    write(tmp_path / "masks", [f"{name}_color" for name in NAMES])
    images, masks = [f"{name}_leftImg" for name in NAMES], [f"{name}_ids" for name in NAMES]
    source = pairs(tmp_path, images, masks, image_suffix="_leftImg", mask_suffix="_ids")
    path, label = source.read(3)
    assert len(source) == 4 and path == str(tmp_path / "images" / "c_leftImg.png")
    assert label == {"mask": str(tmp_path / "masks" / "c_ids.png")}
    with pytest.raises(LoaderError, match=r"masks: '.*masks' holds no .* file whose name ends with '_none'"):
        Pairs(tmp_path / "images", tmp_path / "masks", mask_suffix="_none")


def test_files_without_a_partner_are_named(tmp_path):
    images, masks = [*NAMES, "only", "x/1", "x/2", "x/3", "x/4"], [*NAMES, "d/1"]
    with pytest.raises(LoaderError) as caught:
        pairs(tmp_path, images, masks)
    text = str(caught.value)
    assert "5 of the images have no partner, " in text and "'x/4" not in text and " and 2 more" in text
    assert all(str(tmp_path / "images" / f"{name}.png") in text for name in ("only", "x/1", "x/2"))
    assert f"1 of the masks have no partner, {str(tmp_path / 'masks' / 'd' / '1.png')!r}. " in text


def test_invalid_folders(tmp_path):
    with pytest.raises(LoaderError, match=r"cannot list '.*none'"):
        Pairs(tmp_path / "none", tmp_path)
    (tmp_path / "images").mkdir()
    with pytest.raises(LoaderError, match=r"images: '.*images' holds no \.jpg"):
        Pairs(tmp_path / "images", tmp_path)
    write(tmp_path / "images", ["1"])
    write(tmp_path / "images", ["1"], ending=".jpg")
    with pytest.raises(LoaderError, match=r"images: '.*1\.jpg' and '.*1\.png' have the same name"):
        Pairs(tmp_path / "images", tmp_path)


def test_fingerprints(tmp_path):
    for folder, names in (("one", NAMES), ("two", NAMES), ("other", [*NAMES, "d"])):
        pairs(tmp_path / folder, names, names)
    one, two, other = (Pairs(tmp_path / f / "images", tmp_path / f / "masks") for f in ("one", "two", "other"))
    assert one.fingerprint() == two.fingerprint() == pickle.loads(pickle.dumps(one)).fingerprint()
    assert one.fingerprint() != other.fingerprint()
    assert one.cache_key() != two.cache_key() and str(tmp_path / "one") in one.cache_key()


@given(
    st.sets(st.from_regex(re.compile(r"[a-c]{1,2}(/[a-c.]{0,2}[a-c])?", re.ASCII), fullmatch=True), min_size=1),
    st.data(),
)
def test_either_all_files_have_a_partner_or_an_error_names_one(tmp_path_factory, names, data):
    folder = tmp_path_factory.mktemp("pairs")
    dropped = data.draw(st.sets(st.sampled_from(sorted(names))))
    if dropped in (set(), names):
        source = pairs(folder, list(names), list(names))
        assert len(source) == len(names)
        for path, label in read_all(source):
            assert Path(path).name == Path(label["mask"]).name
    else:
        with pytest.raises(LoaderError, match=f"{len(dropped)} of the images have no partner"):
            pairs(folder, list(names), list(names - dropped))
