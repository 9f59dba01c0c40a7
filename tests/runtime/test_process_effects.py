"""What importing and using cuaug changes in the process: nothing but what docs/promises.md lists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = r"""
import builtins, ctypes, faulthandler, gc, io, locale, logging, os, random, resource, signal, sys, threading, warnings
import numpy as np
import torch
from PIL import Image, ImageFile

libc = ctypes.CDLL(None)
terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13get_terminatev
terminate.restype = ctypes.c_void_p
libc.getenv.restype = ctypes.c_char_p


def status(*names):
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return [lines[name].strip() for name in names]


def state():
    return {
        "signal handlers of Python": [signal.getsignal(number) for number in signal.valid_signals()],
        "blocked, ignored and caught signals, the umask": status("SigBlk", "SigIgn", "SigCgt", "Umask"),
        "std::terminate": terminate(),
        "exception hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook),
        "hooks of imports": [*map(repr, sys.meta_path), *map(repr, sys.path_hooks)],
        "sys.path": list(sys.path),
        "trace and profile functions": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "the switch interval": sys.getswitchinterval(),
        "the recursion limit": sys.getrecursionlimit(),
        "faulthandler": faulthandler.is_enabled(),
        "stdin, stdout, stderr": (sys.stdin, sys.stdout, sys.stderr, [os.fstat(fd)[:2] for fd in range(3)]),
        "built-in functions": (builtins.open, builtins.print, builtins.__import__, io.open, os.open, os.fork),
        "warnings": (list(warnings.filters), warnings.showwarning),
        "the garbage collector": (gc.isenabled(), gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count()),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the working folder": os.getcwd(),
        "environment variables": {k: v for k, v in os.environ.items() if k != "PYNVIMGCODEC_VERBOSITY"},
        "environment variables of C": [libc.getenv(name) for name in (b"OPENCV_LOG_LEVEL", b"OMP_NUM_THREADS", b"TZ")],
        "limits of resources": [resource.getrlimit(kind) for kind in range(16)],
        "CPUs and priority": (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)),
        "the name of the process": open("/proc/self/comm").read(),
        "handlers and levels of logging": (
            logging.root.level, list(logging.root.handlers), logging.getLogger("cuaug").handlers,
            logging.getLogger("cuaug").level, logging.getLoggerClass(), logging.raiseExceptions,
        ),
        "random's generator": random.getstate(),
        "NumPy's generator": repr(np.random.get_state()),
        "NumPy's errors": (np.geterr(), np.geterrcall(), np.getbufsize()),
        "NumPy's print options": np.get_printoptions(),
        "torch's generator": torch.get_rng_state().tolist(),
        "torch's threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "torch's default dtype and device": (torch.get_default_dtype(), torch.get_default_device()),
        "torch's gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "torch's determinism": (
            torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic, torch.get_float32_matmul_precision(),
        ),
        "torch's use of CUDA": torch.cuda.is_initialized(),
        "torch's sharing": torch.multiprocessing.get_sharing_strategy(),
        "torch's print options": repr(torch._tensor_str.PRINT_OPTS),
        "flush of denormals": (torch.tensor([1e-40]) * 1).item() != 0,
        "Pillow's limits": (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, ImageFile.MAXBLOCK),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "child processes": open(f"/proc/self/task/{os.getpid()}/children").read(),
    }


def compare(before, step):
    after = state()
    for name, value in before.items():
        if value != after[name]:
            sys.exit(f"{step} changes {name}: {value!r:.500} -> {after[name]!r:.500}")


sys.path.insert(0, ROOT)
Image.init()
before = state()
import cuaug
from cuaug import transforms as T
for name in cuaug.__all__:
    getattr(cuaug, name)
compare(before, "the import")
from tests.support.loader.further_pictures import Bytes, noisy_jpeg, png
before = state()
chain = T.Compose([T.Resize((8, 8)), T.Normalize(0.5, 0.5)], generator=torch.Generator())
files = Bytes(*[png(i) for i in range(8)], noisy_jpeg(40, 50))
with cuaug.Loader(files, chain, batch_size=4, threads=2, seed=1) as loader:
    assert sum(len(labels) for images, labels in loader) == 9
compare(before, "a loader")
chain(np.zeros((20, 30, 3), np.uint8))
compare(before, "a chain")
"""


@pytest.mark.slow
def test_nothing_else_changes(tmp_path):
    program = PROGRAM.replace("ROOT)", f"{str(ROOT)!r})")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr
