"""Properties of all sources: samples from any thread and process, paths, fingerprints, and use in a Loader."""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import DecodeError, DecodeOptions, Loader, sources
from tests.support.loader.further_pictures import numbers_of
from tests.support.sources.loading import load
from tests.support.sources.writers import KINDS, Kind, Sample, samples

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=KINDS)
def kind(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def source(kind, tmp_path) -> sources.Source:
    kind.write(tmp_path, samples())
    return kind.open(tmp_path)


def number_of(data) -> int:
    """The number that an image encodes."""
    if isinstance(data, np.ndarray) and data.ndim > 1:
        pixels = data
    else:
        with Image.open(data if isinstance(data, (str, os.PathLike)) else io.BytesIO(data)) as image:
            pixels = np.asarray(image)
    assert pixels.shape == (4, 5, 3) and (pixels[..., 2] == 77).all()
    return int(pixels[0, 0, 0]) + 256 * int(pixels[0, 0, 1])


def read_all(source: sources.Source, threads: int = 4, rounds: int = 3) -> dict:
    """{image number: label}; several threads read each sample several times."""
    indices = list(range(len(source))) * rounds
    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(source.read, indices))
    if hasattr(source, "label"):
        assert all(_is_same(label, source.label(i)) for i, (_, label) in zip(indices, results, strict=True))
    return {number_of(data): _plain(label) for data, label in results}


def _is_same(a, b) -> bool:
    return _plain(a) == _plain(b) and type(a) is type(b)


def expected(kind: Kind) -> dict:
    return {sample.number: kind.label(sample) for sample in samples()}


class Large(Sample):
    """A sample whose image is followed by zeros."""

    @property
    def data(self) -> bytes:
        return super().data + bytes(5000)


def test_max_bytes_costs_one_sample_of_every_format(kind, request, tmp_path):
    content = samples()
    kind.write(tmp_path, [*content[:5], Large(*content[5]), *content[6:]])
    errors: list[DecodeError] = []
    decode, source = DecodeOptions(max_bytes=4000), kind.open(tmp_path)
    batch = load(source, decode=decode, on_error="skip", error_callback=errors.append)
    if request.node.callspec.params["kind"] in ("hdf5 pixels", "dataset arrays", "dataset pillow"):
        assert not errors  # they hold no encoded image
    else:
        assert re.fullmatch(r"the \w+ has 5,\d+ bytes, above the limit max_bytes=4,000", errors[0].cause)
        assert sorted(numbers_of(batch.images)) == [number for number in range(12) if number != 5]


def test_every_sample_from_several_threads(kind, source):
    assert read_all(source) == expected(kind)


@pytest.mark.slow
def test_a_forked_child_reads_while_parent_threads_read(kind, source):
    """The child inherits locks and open files that the parent's threads are using."""
    stop = threading.Event()

    def keep_reading() -> None:
        for i in itertools.cycle(range(len(source))):
            if stop.is_set():
                return
            source.read(i)

    def check() -> None:
        os._exit(0 if read_all(source) == expected(kind) else 1)

    threads = [threading.Thread(target=keep_reading) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            child = multiprocessing.get_context("fork").Process(target=check)
            child.start()
            child.join(600)
            code = child.exitcode
            child.kill()
            assert code == 0, "the child hangs" if code is None else f"the child's exit code is {code}"
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert read_all(source) == expected(kind), "the parent reads on"


def test_pickle_before_and_after_reading(kind, source):
    """Open files are not pickled."""
    fresh = pickle.loads(pickle.dumps(source))
    assert read_all(fresh) == expected(kind)
    used = pickle.loads(pickle.dumps(fresh))
    assert read_all(used) == expected(kind) and used.fingerprint() == source.fingerprint()


@pytest.mark.slow
def test_pickle_to_another_process(tmp_path):
    """One process reads all kinds, since starting one takes seconds."""
    opened = {}
    for name, kind in KINDS.items():
        folder = tmp_path / name
        folder.mkdir()
        kind.write(folder, samples())
        opened[name] = kind.open(folder)
        opened[name].read(0)
    results = {name: (expected(KINDS[name]), source.fingerprint()) for name, source in opened.items()}
    program = (
        "import pickle, sys\n"
        "from tests.sources.test_every_source import read_all\n"
        "opened, results = pickle.load(sys.stdin.buffer)\n"
        "for name, source in opened.items():\n"
        "    assert (read_all(source), source.fingerprint()) == results[name], name\n"
        "print(len(opened))\n"
    )
    data = pickle.dumps((opened, results))
    done = subprocess.run([sys.executable, "-c", program], input=data, cwd=ROOT, capture_output=True, timeout=600)
    assert (done.returncode, done.stdout.strip()) == (0, str(len(opened)).encode()), done.stderr.decode()


def test_paths_name_samples(kind, source):
    names = [source.path(i) for i in range(len(source))]
    assert len(set(names)) == len(names) and all(isinstance(name, str) for name in names)


def test_a_fingerprint_does_not_depend_on_the_folder(kind, tmp_path):
    first, second = tmp_path / "first", tmp_path / "elsewhere" / "second"
    for folder in (first, second):
        folder.mkdir(parents=True)
        kind.write(folder, samples())
    fingerprints = {kind.open(first).fingerprint(), kind.open(second).fingerprint()}
    shutil.move(first, tmp_path / "moved")
    fingerprints.add(kind.open(tmp_path / "moved").fingerprint())
    (fingerprint,) = fingerprints
    assert len(fingerprint) == 64 and int(fingerprint, 16)


def test_a_cache_key_depends_on_the_folder_alone(kind, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        kind.write(folder, samples())
    cache_key = kind.open(first).cache_key()
    assert kind.open(first).cache_key() == cache_key != kind.open(second).cache_key()
    assert str(first) in cache_key and json.dumps(cache_key)


def changed_samples(change: str) -> list[Sample]:
    changed = samples()
    if change == "label":
        changed[5] = changed[5]._replace(label=changed[6].label)
    elif change == "name":
        changed[5] = changed[5]._replace(name="0005b")
    elif change == "fewer":
        changed.pop()
    elif change == "exchanged labels":
        a, b = changed[5], changed[6]
        changed[5], changed[6] = a._replace(label=b.label), b._replace(label=a.label)
    return changed


@pytest.mark.parametrize("change", ["label", "name", "fewer", "exchanged labels"])
def test_other_samples_have_another_fingerprint(kind, tmp_path, change):
    if change == "name" and not kind.has_names:
        pytest.skip("this format holds no names")
    for folder, content in (("a", samples()), ("b", changed_samples(change))):
        (tmp_path / folder).mkdir()
        kind.write(tmp_path / folder, content)
    assert kind.open(tmp_path / "a").fingerprint() != kind.open(tmp_path / "b").fingerprint()


def test_in_a_loader(kind, source):
    labels_by_number = expected(kind)
    with Loader(source, batch_size=5, shuffle=True, threads=3) as loader:
        seen = {}
        for images, labels in loader:
            for k, number in enumerate(numbers_of(images)):
                seen[number] = {n: v[k] for n, v in labels.items()} if isinstance(labels, dict) else labels[k]
    assert {n: _plain(label) for n, label in seen.items()} == labels_by_number


def _plain(label):
    if isinstance(label, dict):
        return {name: _plain(value) for name, value in label.items()}
    return label.tolist() if isinstance(label, (torch.Tensor, np.ndarray)) else label
