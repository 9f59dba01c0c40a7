"""No data set or label is unpickled: pickles that would make a file make none."""

from __future__ import annotations

import ast
import contextlib
import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

import cuaug
from cuaug.errors import CuaugError
from cuaug.sources import Files, LitData, Lmdb, Mds, TarShards
from tests.support.loader.further_pictures import png
from tests.support.sources.loading import load
from tests.support.sources.writers import samples, write_environment, write_litdata, write_mds, write_tar

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
                with pytest.raises(cuaug.DecodeError):
                    load(source, decode=cuaug.DecodeOptions(mode=mode))


@pytest.mark.parametrize("kind", ["pkl", "pickle", "npy", "ndarray", "numpy"])
@pytest.mark.parametrize(("write", "source"), [(write_mds, Mds), (write_litdata, LitData)], ids=["MDS", "LitData"])
def test_records(tmp_path, write, source, kind):
    """A folder whose labels may hold pickles is refused before any record is read."""
    write(tmp_path, samples())
    index = tmp_path / "index.json"
    index.write_text(index.read_text().replace('"int"', f'"{kind}"'))
    with pytest.raises(CuaugError, match="'label' has the encoding"):
        source(tmp_path)
    assert source(tmp_path, label=None).read(0) == (png(0), 0)


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
