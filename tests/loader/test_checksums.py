"""Silent corruption: one flipped bit is found, named, and costs one sample."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import subprocess
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from cuaug import DecodeError, Loader, LoaderError
from cuaug import transforms as T
from cuaug.sources import Files
from cuaug.sources.checked import ChecksumSource
from tests.loader.pictures import Arrays, Bytes, Memory, numbers_of, png, write_photos

ALGORITHMS = ["crc32", "md5", "sha256", "blake2b"]


@pytest.fixture
def paths(tmp_path) -> list[str]:
    """Ten one-color images; the color of image i is its label."""
    (tmp_path / "photos").mkdir()
    files = [tmp_path / "photos" / f"{i}.png" for i in range(10)]
    for i, file in enumerate(files):
        file.write_bytes(png(i))
    return list(map(str, files))


def flip(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


# --- one bit ---------------------------------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(ALGORITHMS))
def test_any_flipped_bit_is_found(data, algorithm):
    good = data.draw(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=5))
    sums = ChecksumSource.compute(Bytes(*good), algorithm)
    unchanged = ChecksumSource(Bytes(*good), sums, algorithm)
    assert all(unchanged.read(i) == (good[i], i) for i in range(len(good)))
    k = data.draw(st.integers(0, len(good) - 1))
    bad = list(good)
    bad[k] = flip(good[k], data.draw(st.integers(0, 8 * len(good[k]) - 1)))
    checked = ChecksumSource(Bytes(*bad), sums, algorithm)
    for i in range(len(good)):
        if i != k:
            assert checked.read(i) == (good[i], i)
    with pytest.raises(DecodeError) as caught:
        checked.read(k)
    (found,) = ChecksumSource.compute(Bytes(bad[k]), algorithm)
    assert caught.value.index == k and sums[k] in caught.value.cause and found in caught.value.cause != sums[k]


@given(st.data(), st.sampled_from(ALGORITHMS))
def test_any_flipped_bit_of_an_array_is_found(data, algorithm):
    shape = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3])))
    pixels = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 256, shape, dtype=np.uint8)
    views = [pixels, pixels[:, ::-1], pixels[::2], np.asfortranarray(pixels)]
    sums = ChecksumSource.compute(Arrays(*views), algorithm)
    assert sums == ChecksumSource.compute(Arrays(*map(np.ascontiguousarray, views)), algorithm)
    checked = ChecksumSource(Arrays(*views), sums, algorithm)
    for i, view in enumerate(views):
        assert checked.read(i)[0] is view
    at = data.draw(st.tuples(*(st.integers(0, size - 1) for size in shape)))
    bad = pixels.copy()
    bad[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DecodeError, match=f"sample 0.*{algorithm} checksum .* instead of {sums[0]}"):
        ChecksumSource(Arrays(bad), sums[:1], algorithm).read(0)


def test_compute_equals_the_standard_digests():
    data = [b"", b"a", b"hello" * 1000, png(3)]
    assert ChecksumSource.compute(Bytes(*data)) == [f"{zlib.crc32(d):08x}" for d in data]
    for name in ALGORITHMS[1:]:
        assert ChecksumSource.compute(Bytes(*data), name) == [hashlib.new(name, d).hexdigest() for d in data]


def test_damage_that_decodes_costs_one_sample(tmp_path, caplog):
    """Without checksums the file decodes."""
    paths = write_photos(tmp_path, 8)
    source = Files(paths)
    sums = ChecksumSource.compute(source)
    good = Path(paths[5]).read_bytes()
    for bit in range(8 * len(good) - 800, 8 * len(good), 7):  # near the end: in the pixels
        Path(paths[5]).write_bytes(flip(good, bit))
        with Loader([paths[5]]) as loader:
            try:
                next(iter(loader))
                break
            except DecodeError:
                pass
    else:
        raise AssertionError("every flipped bit was noticed")
    caplog.clear()  # libjpeg warns of the damage
    with Loader(ChecksumSource(source, sums), T.CenterCrop(32), batch_size=8, on_error="skip", threads=2) as loader:
        assert next(iter(loader))[1].tolist() == [0, 1, 2, 3, 4, 6, 7]
    (record,) = caplog.records
    assert f"{paths[5]!r} (sample 5)" in record.getMessage() and sums[5] in record.getMessage()
    with (
        Loader(ChecksumSource(source, sums), T.CenterCrop(32)) as loader,
        pytest.raises(DecodeError, match=sums[5]) as caught,
    ):
        list(loader)
    assert (caught.value.path, caught.value.index) == (paths[5], 5)


def test_unchanged_files_load_as_without_checksums(paths):
    with Loader(paths, batch_size=4, shuffle=True, seed=0) as plain:
        expected = [(numbers_of(images), labels.tolist()) for images, labels in plain]
    with Loader(
        ChecksumSource(Files(paths), ChecksumSource.compute(Files(paths))),
        batch_size=4,
        shuffle=True,
        threads=3,
        seed=0,
    ) as loader:
        assert [(numbers_of(images), labels.tolist()) for images, labels in loader] == expected


def test_the_checked_bytes_are_decoded(paths):
    """The decoder gets the bytes, not the path: another process may write to the file in between."""
    data, label = ChecksumSource(Files(paths), ChecksumSource.compute(Files(paths))).read(3)
    assert data == png(3) and label == 3


def test_files_that_cannot_be_read(paths, caplog):
    source = Files(paths)
    checked = ChecksumSource(source, ChecksumSource.compute(source))
    Path(paths[2]).unlink()
    with pytest.raises(DecodeError, match="No such file") as caught:
        checked.read(2)
    assert (caught.value.path, caught.value.index) == (paths[2], 2) and isinstance(caught.value.__cause__, OSError)
    with pytest.raises(DecodeError, match=r"2.png' \(sample 2\): No such file"):
        ChecksumSource.compute(source)
    with Loader(checked, on_error="skip", batch_size=10) as loader:
        assert numbers_of(next(iter(loader))[0]) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    for name in ("a\0.png", "a\ud800.png"):
        with pytest.raises(DecodeError, match=r"\(sample 0\): no file can have such a name"):
            ChecksumSource(Files([name]), [0]).read(0)


# --- checksums as they are given -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        lambda paths: [zlib.crc32(png(i)) for i in range(10)],
        lambda paths: np.array([zlib.crc32(png(i)) for i in range(10)], dtype=np.uint32),
        lambda paths: [f"{zlib.crc32(png(i)):08X}" for i in range(10)],
        lambda paths: {path: zlib.crc32(png(i)) for i, path in enumerate(paths)},
        lambda paths: {path: f"{zlib.crc32(png(i)):08x}" for i, path in reversed(list(enumerate(paths)))} | {"x": "y"},
    ],
    ids=["integers", "array", "capitals", "mapping of integers", "mapping of strings"],
)
def test_all_forms_of_checksums_are_accepted(paths, given):
    checked = ChecksumSource(Files(paths), given(paths))
    assert [checked.read(i) for i in range(10)] == [(png(i), i) for i in range(10)]


@pytest.mark.parametrize(
    ("checksums", "algorithm", "message"),
    [
        (["00000000"] * 9, "crc32", "checksums has 9 entries for 10 samples"),
        ([], "crc32", "checksums has 0 entries for 10 samples"),
        (
            ["00000000"] * 9 + ["0000"],
            "crc32",
            "that of sample 9 is '0000'; crc32 needs 8 hexadecimal digits or a 32-bit int",
        ),
        ([0] * 9 + [2**32], "crc32", "sample 9 is 4294967296"),
        ([0] * 9 + [-1], "crc32", "sample 9 is -1"),
        ([0] * 9 + [1.5], "crc32", "sample 9 is 1.5"),
        ([0] * 9 + [None], "crc32", "sample 9 is None"),
        ([0] * 10, "sha256", "sample 0 is 0; sha256 needs 64 hexadecimal digits$"),
        (["g" * 64] * 10, "sha256", "sample 0 is 'ggg"),
        (["0" * 32] * 10, "sha256", "sha256 needs 64 hexadecimal digits"),
        ({"elsewhere": 0}, "crc32", "mapping has no checksum for 10 of 10 samples; the first is .*0.png'"),
        ("no/such/file", "crc32", "cannot read 'no/such/file': No such file"),
        ([0] * 10, "crc33", r"algorithm must be crc32 or one of hashlib \(.*sha256.*\), not 'crc33'"),
        ([0] * 10, "shake_128", "not 'shake_128'"),
        ([0] * 10, None, "not None"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_invalid_checksums_are_refused(paths, checksums, algorithm, message):
    with pytest.raises(LoaderError, match=message):
        ChecksumSource(Files(paths), checksums, algorithm)


@pytest.mark.parametrize("source", ["photos", None, 3])
def test_values_that_are_no_source_are_refused(source):
    with pytest.raises(LoaderError, match="source must have __len__ and read"):
        ChecksumSource(source, [])
    with pytest.raises(LoaderError, match="source must have __len__ and read"):
        ChecksumSource.compute(source)


# --- text files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["crc32", "sha256"])
def test_checksums_are_saved_and_read(paths, tmp_path, algorithm, monkeypatch):
    source = Files(paths)
    file = tmp_path / "sums"
    ChecksumSource(source, ChecksumSource.compute(source, algorithm), algorithm).save(file)
    assert file.read_text().splitlines()[3] == f"{ChecksumSource.compute(source, algorithm)[3]}  photos/3.png"
    other = tmp_path / "moved"
    shutil.move(tmp_path / "photos", other / "photos")
    shutil.move(file, other)
    monkeypatch.chdir(other)
    for folder in (str(other / "photos"), "photos", "../moved/photos"):
        moved = Files([f"{folder}/{i}.png" for i in range(10)])
        checked = ChecksumSource(moved, "sums", algorithm)
        assert [checked.read(i)[0] for i in range(10)] == [png(i) for i in range(10)]
    with pytest.raises(LoaderError, match="'sums' has no checksum for 1 of 1 samples"):
        ChecksumSource(Files(["photos/10.png"]), "sums", algorithm)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="coreutils are not installed")
def test_sha256sum_agrees(tmp_path):
    names = ["a.png", "with  two spaces.png", "new\nline.png", "back\\slash\\n.png", "*star.png", "ümlaut.png", "#.png"]
    (tmp_path / "photos").mkdir()
    for i, name in enumerate(names):
        (tmp_path / "photos" / name).write_bytes(png(i))
    source = Files([str(tmp_path / "photos" / name) for name in names])
    for flags in ([], ["--binary"]):
        theirs = subprocess.run(
            ["sha256sum", *flags, *(f"photos/{name}" for name in names)], cwd=tmp_path, capture_output=True, check=True
        )
        (tmp_path / "theirs").write_bytes(theirs.stdout)
        checked = ChecksumSource(source, tmp_path / "theirs", "sha256")
        assert [checked.read(i)[0] for i in range(len(names))] == [png(i) for i in range(len(names))]
    checked.save(tmp_path / "ours")
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "ours"], cwd=tmp_path, check=True)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes().replace(b" *photos", b"  photos")
    (tmp_path / "photos" / "a.png").write_bytes(flip(png(0), 100))
    done = subprocess.run(["sha256sum", "--check", "--quiet", "ours"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 1 and b"a.png" in done.stdout


def test_a_link_in_place_of_the_file_stays(paths, tmp_path):
    checked = ChecksumSource(Files(paths[:1]), ["0" * 8])
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "sums").symlink_to("mine")
    with pytest.raises(OSError, match="sums' is a symbolic link"):
        checked.save(tmp_path / "sums")
    assert (tmp_path / "mine").read_bytes() == b"mine" and not list(tmp_path.glob(".cuaug-*"))


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=1, unique=True))
def test_every_name_survives_the_file(names):
    class Named(Memory):
        def path(self, index: int) -> str:
            return "/data/" + names[index].replace("/", "_") + ".png"

    source = Named(len(names))
    assume(len({source.path(i) for i in range(len(names))}) == len(names))
    checked = ChecksumSource(source, ChecksumSource.compute(source))
    with tempfile.TemporaryDirectory() as folder:
        checked.save(folder + "/sums")
        again = ChecksumSource(source, folder + "/sums")
    assert [again.read(i) for i in range(len(names))] == [checked.read(i) for i in range(len(names))]


def test_names_that_no_file_can_have_are_refused(tmp_path):
    (tmp_path / "sums").write_text("old")
    source = Files(["a.png", "\ud800.png"])
    with pytest.raises(LoaderError, match=r"'\\ud800\.png' cannot be written to .*sums'"):
        ChecksumSource(source, [0, 0]).save(tmp_path / "sums")
    assert (tmp_path / "sums").read_text() == "old"
    for name in ("\ud800", "a\0b"):
        with pytest.raises(LoaderError, match=r"^cannot read .*no file can have such a name"):
            ChecksumSource(source, name)


def test_urls_are_kept_as_they_are(tmp_path):
    class Remote(Memory):
        def path(self, index: int) -> str:
            return f"https://example.org/{index}.png"

    ChecksumSource(Remote(3), ChecksumSource.compute(Remote(3))).save(tmp_path / "sums")
    assert (tmp_path / "sums").read_text().splitlines()[2].endswith("  https://example.org/2.png")
    assert ChecksumSource(Remote(3), tmp_path / "sums").read(2) == (png(2), 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0123abcd photos/0.png\n", "line 1: expected 'digest  path', got '0123abcd photos/0.png'"),
        ("# a comment\n\n0123abcd\n", "line 3: expected 'digest  path'"),
        ("0123abcd  \n", "line 1"),
        ("0123abcd  a\n0123abce  ./a\n", "line 2: .*/a' has another checksum above"),
        ("0123abc  photos/0.png\n", "sample 0 is '0123abc'; crc32 needs 8"),
    ],
)
def test_invalid_checksum_files_are_refused(paths, tmp_path, text, message):
    (tmp_path / "sums").write_text(text)
    with pytest.raises(LoaderError, match=message):
        ChecksumSource(Files(paths[:1]), tmp_path / "sums")


def test_samples_without_names():
    checked = ChecksumSource(Memory(3), ChecksumSource.compute(Memory(3)))
    with pytest.raises(LoaderError, match=r"Memory has no path\(i\)"):
        checked.save("sums")
    with pytest.raises(LoaderError, match=r"Memory has no path\(i\)"):
        ChecksumSource(Memory(3), {"a": 0})


# --- as a source -----------------------------------------------------------------------------------------------------


def test_attributes_of_the_source_are_kept(paths):
    class Everything(Files):
        shard_sizes = (4, 6)

        def label(self, index: int) -> int:
            return self.labels[index]

        def fingerprint(self) -> str:
            return "the same"

    checked = ChecksumSource(Everything(paths, classes=["a", "b"]), ChecksumSource.compute(Files(paths)))
    assert len(checked) == 10 and checked.classes == ["a", "b"] and checked.shard_sizes == (4, 6)
    assert checked.path(3) == paths[3] and checked.label(3) == 3 and checked.fingerprint() == "the same"
    plain = ChecksumSource(Memory(2), ChecksumSource.compute(Memory(2)))
    for name in ("path", "label", "classes", "shard_sizes", "fingerprint", "count"):
        assert not hasattr(plain, name)


def test_a_checksum_source_pickles(paths):
    source = Files(paths)
    checked = pickle.loads(pickle.dumps(ChecksumSource(source, ChecksumSource.compute(source, "sha256"), "sha256")))
    assert [checked.read(i)[0] for i in range(10)] == [png(i) for i in range(10)]
    Path(paths[1]).write_bytes(png(2))
    with pytest.raises(DecodeError, match="sha256"):
        pickle.loads(pickle.dumps(checked)).read(1)


def test_many_threads_read_a_checksum_source(paths):
    source = Memory(700)
    sums = ChecksumSource.compute(source, threads=7)
    assert sums == [f"{zlib.crc32(png(i)):08x}" for i in range(700)]
    checked = ChecksumSource(Memory(700, damaged=[256]), sums)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: i == 256 or checked.read(i) == (png(i), i), range(700)))
    assert all(found)
    with Loader(checked, batch_size=64, threads=4, on_error="skip") as loader:
        assert torch.cat([labels for _, labels in loader]).tolist() == [i for i in range(700) if i != 256]
