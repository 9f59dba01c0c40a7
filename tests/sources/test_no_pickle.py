"""No data set or label is unpickled: pickles that would make a file make none."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import cuaug
from cuaug.errors import CuaugError
from cuaug.sources import Files, LitData, Lmdb, Mds, TarShards
from tests.support.loader.further_pictures import png
from tests.support.sources.writers import record_file, write_environment, write_tar

#: Calls that load pickles or run code, in files that may hold them: a pipe of our own, and the user's own --transforms.
ALLOWED = {"devices/nvrtc_program.py": {"pickle.load"}, "commands/profile.py": {"eval"}}
FORBIDDEN = {"pickle.load", "pickle.loads", "pickle.Unpickler", "np.load", "numpy.load", "yaml.load", "marshal.loads"}
FORBIDDEN |= {"eval", "exec", "joblib.load", "shelve.open"}


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def fuse(tmp_path):
    """A path that no test may make; `pickle` would."""
    path = tmp_path / "exploded"
    pickle.loads(pickle.dumps(Bomb(path)))
    assert path.exists()
    path.unlink()
    yield path
    assert not path.exists()


def object_array(fuse: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Bomb(fuse)], dtype=object), allow_pickle=True)
    return file.getvalue()


def archive(fuse: Path) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("a.npy", object_array(fuse))
    return file.getvalue()


@pytest.mark.parametrize("extension", ["npy", "npz", "pkl", "pickle", "pyd", "pth", "cls", "json", "txt"])
def test_labels_of_shards(tmp_path, fuse, extension):
    data = {"npy": object_array, "npz": archive}.get(extension, lambda path: pickle.dumps(Bomb(path)))(fuse)
    write_tar(tmp_path / "a.tar", {"a.png": png(0), f"a.{extension}": data})
    source = TarShards(tmp_path / "a.tar", label=extension)
    with contextlib.suppress(CuaugError):
        assert isinstance(source.read(0)[1], bytes)  # of kinds that are not decoded


def test_images(tmp_path, fuse):
    for i, data in enumerate((object_array(fuse), archive(fuse), pickle.dumps(Bomb(fuse)))):
        (tmp_path / f"{i}.png").write_bytes(data)
        write_environment(tmp_path / f"{i}.lmdb", {b"a": data})
        for source in (Files([str(tmp_path / f"{i}.png")]), Lmdb(tmp_path / f"{i}.lmdb")):
            for mode in ("RGB", "unchanged"):
                loader = cuaug.Loader(source, batch_size=1, device="cpu", decode=cuaug.DecodeOptions(mode=mode))
                with loader, pytest.raises(cuaug.DecodeError):
                    list(loader)


@pytest.mark.parametrize("kind", ["pkl", "pickle", "npy", "ndarray", "numpy"])
def test_records(tmp_path, fuse, kind):
    data = pickle.dumps(Bomb(fuse))
    record = struct.pack("<II", len(png(0)), len(data)) + png(0) + data
    for name, source_class in (("mds", Mds), ("litdata", LitData)):
        folder = tmp_path / name
        folder.mkdir()
        whole = record_file([record], b"{}" if name == "mds" else b"")
        (folder / "0.bin").write_bytes(whole)
        columns = {"column_names": ["image", "label"], "column_encodings": ["png", kind], "column_sizes": [None, None]}
        shard = {**columns, "format": "mds", "version": 2, "samples": 1}
        leaf = {"type": None, "context": None, "children_spec": []}
        spec = [1, {"type": "builtins.dict", "context": '["image", "label"]', "children_spec": [leaf, leaf]}]
        index = {
            "shards": [{**shard, "raw_data": {"basename": "0.bin", "bytes": len(whole)}}],
            "chunks": [{"filename": "0.bin", "chunk_size": 1, "chunk_bytes": len(whole)}],
            "config": {"data_format": ["bytes", kind], "data_spec": json.dumps(spec)},
        }
        (folder / "index.json").write_text(json.dumps(index))
        with pytest.raises(CuaugError, match="'label' has the encoding"):
            source_class(folder)
        assert source_class(folder, label=None).read(0) == (png(0), 0)


def test_no_call_unpickles():
    folder = Path(cuaug.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        name = str(path.relative_to(folder))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                call = ast.unparse(node.func)
                assert call not in FORBIDDEN - ALLOWED.get(name, set()), f"{name}:{node.lineno}: {call}"
                if call == "torch.load":
                    assert "weights_only=True" in ast.unparse(node), f"{name}:{node.lineno}"
