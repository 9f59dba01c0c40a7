"""Lines that image libraries print to C's stderr become log messages with the sample's name, and nothing else."""

from __future__ import annotations

import ctypes
import io
import logging
import os
import subprocess
import sys
import threading

import pytest
from PIL import Image

from cuaug import Loader
from cuaug import transforms as T
from cuaug.codec import CpuDecoder, read_header
from cuaug.codec.messages import TEXT_BYTES, capture_stderr, split_lines
from tests.support.codec.encoded_images import FORMATS, JPEG, png_with

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="needs glibc")

EXTRA = JPEG[:-2] + b"\0" * 5 + JPEG[-2:]
MORE = JPEG[:-2] + b"\0" * 9 + JPEG[-2:]
GAMMA = png_with(b"not four bytes", name=b"gAMA")
#: {name: a damaged file that decodes, and the line that is printed about it}.
PRINTED = {
    "extra.jpg": (EXTRA, "Corrupt JPEG data: 1 extraneous bytes before marker 0xd9"),
    "more.jpg": (MORE, "Corrupt JPEG data: 5 extraneous bytes before marker 0xd9"),
    "gamma.png": (GAMMA, "libpng warning: gAMA: too long"),
}


def damaged_lzw() -> bytes:
    """A TIFF that neither nvImageCodec nor Pillow decodes."""
    data = bytearray(FORMATS["tiff tiff_lzw"])
    at = Image.open(io.BytesIO(bytes(data))).tag_v2[273][0]
    data[at + 20 : at + 40] = b"\xff" * 20
    return bytes(data)


def c_print(text: bytes) -> None:
    libc = ctypes.CDLL(None)
    libc.fputs(text, ctypes.c_void_p.in_dll(libc, "stderr"))


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


@pytest.mark.parametrize("cache", [None, "decoded"])
def test_a_loader_logs_each_line_once_with_the_samples_name(tmp_path, capfd, caplog, cache):
    """Files decode several at a time, or one at a time into a cache."""
    for i in range(6):
        (tmp_path / f"sound{i}.jpg").write_bytes(JPEG)
    for name, (data, _) in PRINTED.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "lzw.tif").write_bytes(damaged_lzw())
    paths = sorted(map(str, tmp_path.iterdir()))
    want = {f"{path!r} (sample {i})": PRINTED[os.path.basename(path)][1] for i, path in enumerate(paths)
            if os.path.basename(path) in PRINTED}  # fmt: skip
    lzw = f"{tmp_path / 'lzw.tif'}"
    want[f"{lzw!r} (sample {paths.index(lzw)})"] = "tempfile.tif: Using code not yet in table."
    with (
        caplog.at_level(logging.WARNING, "cuaug"),
        Loader(
            paths, T.Resize((16, 16)), batch_size=10, threads=4, on_error="skip", cache=cache, device="cpu"
        ) as loader,
    ):
        for _ in range(2):
            for _batch in loader:
                pass
    found = sorted(record.getMessage() for record in caplog.records if "skipped" not in record.getMessage())
    assert found == sorted(f"{name}: {line}" for name, line in want.items())
    assert all(record.levelno == logging.WARNING and record.name == "cuaug" for record in caplog.records)
    assert capfd.readouterr().err == ""


def test_other_threads_print_as_before(capfd):
    """This thread captures while others decode."""
    stop, decoded = threading.Event(), []

    def decode() -> None:
        decoder = CpuDecoder()
        while not stop.is_set():
            decoder.decode(read_header(EXTRA))
            decoded.append(decoder.lines == [PRINTED["extra.jpg"][1]])

    threads = [threading.Thread(target=decode) for _ in range(3)]
    for thread in threads:
        thread.start()
    with capture_stderr() as lines:
        c_print(b"mine\n")
        other = threading.Thread(target=c_print, args=(b"another's\n",))
        other.start()
        other.join()
        c_print(b"mine too\n")
        os.write(2, b"to the descriptor\n")
    while len(decoded) < 300:
        c_print(b"")
    stop.set()
    for thread in threads:
        thread.join()
    c_print(b"afterwards\n")
    assert lines == ["mine", "mine too"] and all(decoded)
    assert capfd.readouterr().err == "another's\nto the descriptor\nafterwards\n"


def test_an_exception_ends_the_capture(capfd):
    with pytest.raises(KeyError), capture_stderr() as lines:
        c_print(b"before\n")
        raise KeyError
    c_print(b"after\n")
    assert lines == ["before"] and capfd.readouterr().err == "after\n"


def test_long_texts_are_truncated():
    with capture_stderr() as lines:
        for _ in range(TEXT_BYTES):
            c_print(b"abcdefg\n\xff")
    assert lines[0] == "abcdefg" and lines[1] == "\\xffabcdefg" and lines[-1].endswith("...") and len(lines) == 456
    assert split_lines(b"") == [] and split_lines(b"one\n\ntwo") == ["one", "", "two"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_stderr_works_after_a_fork_and_at_exit():
    """`fileno(stderr)` still works; Python needs it for fatal errors."""
    done = python("""
import ctypes, os, sys, threading
from cuaug.codec import CpuDecoder, read_header
from tests.codec.test_messages import EXTRA, c_print

decoder, stop = CpuDecoder(), threading.Event()

def print_repeatedly():
    while not stop.is_set():
        c_print(b"")  # holds the stream's lock at most moments

threads = [threading.Thread(target=print_repeatedly) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    if not (pid := os.fork()):
        c_print(b"child\\n")
        child = CpuDecoder()
        child.decode(read_header(EXTRA))
        os._exit(0 if child.lines else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
stop.set()
libc = ctypes.CDLL(None)
assert libc.fileno(ctypes.c_void_p.in_dll(libc, "stderr")) == 2
libc.on_exit(ctypes.cast(libc.perror, ctypes.c_void_p), None)
c_print(b"parent\\n")
""")
    assert done.returncode == 0 and done.stderr.startswith("child\n" * 20 + "parent\n"), done.stderr
    done = python("import cuaug.codec, ctypes; ctypes.pythonapi.Py_FatalError(b'so it ends')")
    assert "Fatal Python error" in done.stderr and "so it ends" in done.stderr
