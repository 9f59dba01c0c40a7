"""What all sources promise: right samples from any thread and process, names, fingerprints, and use in a Loader."""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import os
import pickle
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

from cuaug import Loader, LoaderError, sources
from tests.loader.pictures import numbers_of
from tests.sources.writers import KINDS, Kind, Sample, samples

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=KINDS)
def kind(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def source(kind, tmp_path) -> sources.Source:
    kind.write(tmp_path, samples())
    return kind.open(tmp_path)


def number_of(data) -> int:
    """Which picture it is."""
    if isinstance(data, np.ndarray) and data.ndim > 1:
        pixels = data
    else:
        with Image.open(data if isinstance(data, (str, os.PathLike)) else io.BytesIO(data)) as image:
            pixels = np.asarray(image)
    assert pixels.shape == (4, 5, 3) and (pixels[..., 2] == 77).all()
    return int(pixels[0, 0, 0]) + 256 * int(pixels[0, 0, 1])


def read_all(source: sources.Source, threads: int = 4, rounds: int = 3) -> dict:
    """{picture: label}, read by several threads, each sample several times."""
    indices = list(range(len(source))) * rounds
    with ThreadPoolExecutor(threads) as pool:
        read = list(pool.map(source.read, indices))
    if hasattr(source, "label"):
        assert all(_same(label, source.label(i)) for i, (_, label) in zip(indices, read, strict=True))
    return {number_of(data): label for data, label in read}


def _same(a, b) -> bool:
    return a == b and type(a) is type(b)


def expected(kind: Kind) -> dict:
    return {sample.number: kind.label(sample) for sample in samples()}


# --- threads and processes -------------------------------------------------------------------------------------------


def test_it_is_a_source(source):
    assert isinstance(source, sources.Source) and len(source) == 12
    assert sources.open_source(source) is source


def test_its_repr_is_one_line_of_what_there_is(source):
    name, classes = type(source).__name__, getattr(source, "classes", None)
    within = f" in {len(classes)} classes" if classes else ""
    begin = f"{name}(12 samples{within}, "
    if isinstance(getattr(source, "sources", None), list):  # its first is the first one's
        assert repr(source).startswith(f"{begin}of {source.sources[0]!r}")
    else:
        assert repr(source) == str(source) == f"{begin}the first {source.path(0)!r})"


def test_reprs_of_sources_made_of_others(tmp_path):
    KINDS["files"].write(tmp_path, samples())
    one = KINDS["files"].open(tmp_path)
    inner = repr(one)
    assert (
        repr(sources.ChecksumSource(one, sources.ChecksumSource.compute(one)))
        == f"ChecksumSource(12 samples, of {inner})"
    )
    part = sources.open_source(torch.utils.data.Subset(one, [3]))
    assert repr(part) == f"SubsetSource(1 sample, of {inner})"
    joined = sources.open_source(torch.utils.data.ConcatDataset([one, part, one, one, one]))
    assert repr(joined) == f"ConcatSource(49 samples, of {inner}, {part!r}, {inner} and 2 more)"


def test_every_sample_from_several_threads(kind, source):
    assert read_all(source) == expected(kind)


@pytest.mark.slow
def test_after_a_fork_while_threads_read(kind, source):
    """The child has copies of locks and open files, which the parent's threads are using right now."""
    stop = threading.Event()

    def use() -> None:
        for i in itertools.cycle(range(len(source))):
            if stop.is_set():
                return
            source.read(i)

    def check() -> None:
        os._exit(0 if read_all(source) == expected(kind) else 1)

    users = [threading.Thread(target=use) for _ in range(3)]
    for user in users:
        user.start()
    try:
        for _ in range(4):
            child = multiprocessing.get_context("fork").Process(target=check)
            child.start()
            child.join(60)
            code = child.exitcode
            child.kill()
            assert code == 0, "the child hangs" if code is None else f"the child's exit code is {code}"
    finally:
        stop.set()
        for user in users:
            user.join()
    assert read_all(source) == expected(kind), "and the parent goes on"


def test_pickled(kind, source):
    """Before and after it has read, it pickles without what it has open."""
    fresh = pickle.loads(pickle.dumps(source))
    assert read_all(fresh) == expected(kind)
    used = pickle.loads(pickle.dumps(fresh))
    assert read_all(used) == expected(kind) and used.fingerprint() == source.fingerprint()


@pytest.mark.slow
def test_pickled_to_another_process(tmp_path):
    """All kinds in one process, since starting one takes seconds."""
    opened = {}
    for name, kind in KINDS.items():
        if kind.shared:
            folder = tmp_path / name
            folder.mkdir()
            kind.write(folder, samples())
            opened[name] = kind.open(folder)
            opened[name].read(0)
    wanted = {name: (expected(KINDS[name]), source.fingerprint()) for name, source in opened.items()}
    program = (
        "import pickle, sys\n"
        "from tests.sources.test_every_source import read_all\n"
        "opened, wanted = pickle.load(sys.stdin.buffer)\n"
        "for name, source in opened.items():\n"
        "    assert (read_all(source), source.fingerprint()) == wanted[name], name\n"
        "print(len(opened))\n"
    )
    given = pickle.dumps((opened, wanted))
    done = subprocess.run([sys.executable, "-c", program], input=given, cwd=ROOT, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, str(len(opened)).encode()), done.stderr.decode()


# --- names and fingerprints ------------------------------------------------------------------------------------------


def test_paths_name_samples(kind, source):
    names = [source.path(i) for i in range(len(source))]
    assert len(set(names)) == len(names) and all(isinstance(name, str) for name in names)


def test_a_fingerprint_is_the_same_wherever_the_data_set_lies(kind, tmp_path):
    first, second = tmp_path / "first", tmp_path / "elsewhere" / "second"
    for folder in (first, second):
        folder.mkdir(parents=True)
        kind.write(folder, samples())
    prints = {kind.open(first).fingerprint(), kind.open(second).fingerprint()}
    if kind.shared:
        shutil.move(first, tmp_path / "moved")
        prints.add(kind.open(tmp_path / "moved").fingerprint())
    (fingerprint,) = prints
    assert len(fingerprint) == 64 and int(fingerprint, 16)


def test_an_origin_tells_where_it_lies_and_is_the_same_when_opened_again(kind, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        kind.write(folder, samples())
    cache_key = kind.open(first).cache_key()
    assert kind.open(first).cache_key() == cache_key != kind.open(second).cache_key()
    assert str(first) in cache_key and json.dumps(cache_key)


def changed(what: str) -> list[Sample]:
    these = samples()
    if what == "label":
        these[5] = these[5]._replace(label=these[6].label)
    elif what == "name":
        these[5] = these[5]._replace(name="0005b")
    elif what == "fewer":
        these.pop()
    elif what == "exchanged labels":
        a, b = these[5], these[6]
        these[5], these[6] = a._replace(label=b.label), b._replace(label=a.label)
    return these


@pytest.mark.parametrize("what", ["label", "name", "fewer", "exchanged labels"])
def test_a_fingerprint_tells_other_samples(kind, tmp_path, what):
    if what == "name" and not kind.has_names:
        pytest.skip("it holds no names")
    for folder, these in (("a", samples()), ("b", changed(what))):
        (tmp_path / folder).mkdir()
        kind.write(tmp_path / folder, these)
    assert kind.open(tmp_path / "a").fingerprint() != kind.open(tmp_path / "b").fingerprint()


# --- in a Loader -----------------------------------------------------------------------------------------------------


def test_in_a_loader(kind, source):
    wanted = expected(kind)
    with Loader(source, batch_size=5, shuffle=True, threads=3) as loader:
        seen = {}
        for images, labels in loader:
            for k, number in enumerate(numbers_of(images)):
                seen[number] = {n: v[k] for n, v in labels.items()} if isinstance(labels, dict) else labels[k]
    assert {n: _plain(label) for n, label in seen.items()} == wanted


def _plain(label):
    if isinstance(label, dict):
        return {name: _plain(value) for name, value in label.items()}
    return label.item() if isinstance(label, torch.Tensor) else label


def test_a_state_of_another_data_set_is_refused(kind, tmp_path):
    loaders = []
    for folder, these in (("a", samples()), ("b", changed("label"))):
        (tmp_path / folder).mkdir()
        kind.write(tmp_path / folder, these)
        loaders.append(Loader(kind.open(tmp_path / folder), batch_size=4))
    next(iter(loaders[0]))
    with pytest.raises(LoaderError, match="fingerprint of the source"):
        loaders[1].load_state_dict(loaders[0].state_dict())
    for loader in loaders:
        loader.close()
