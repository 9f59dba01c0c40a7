"""The exceptions cuaug raises on purpose, which derive from `CuaugError`, and its warnings."""

from __future__ import annotations

import sys
import warnings

__all__ = [
    "ArgumentError",
    "ChainWarning",
    "CuaugError",
    "DecodeError",
    "DeviceError",
    "LoaderClosedError",
    "LoaderError",
    "LoaderTimeoutError",
    "RankError",
    "SourceError",
    "TransformError",
    "warn_caller",
    "without_frames",
]


class CuaugError(Exception):
    """Base of every exception that cuaug defines."""


class TransformError(CuaugError, ValueError):
    """A transform's arguments or input images are invalid or do not fit together."""


class ChainWarning(UserWarning):
    """The transforms of a chain run, but their order does harm."""


class DeviceError(CuaugError, RuntimeError):
    """A device cannot be used: no driver, no CuPy, or a kernel does not compile."""


class LoaderError(CuaugError, RuntimeError):
    """Base of the errors of loaders, sources, samplers and caches."""


class ArgumentError(LoaderError, ValueError):
    """An argument is invalid, or arguments do not fit together."""


class SourceError(LoaderError):
    """A data set, its index or a cache cannot be used, or gives something unusable."""


class LoaderTimeoutError(LoaderError, TimeoutError):
    """A read or decode task took longer than `timeout_seconds`."""


class LoaderClosedError(LoaderError):
    """The loader was closed, or belongs to another process."""


class RankError(LoaderError):
    """The ranks of torch.distributed are about to load different data, or a rank iterates alone."""


class DecodeError(CuaugError, ValueError):
    """One encoded image could not be read or decoded.

    Attributes:
        path: the file's path; None where the bytes came from memory.
        index: the sample's index in its source; None where it is not known.
        cause: one line about the damage.
    """

    def __init__(self, cause: str, *, path: str | None = None, index: int | None = None) -> None:
        self.cause = cause
        self.path = path
        self.index = index
        file = "" if path is None else f" {path!r}"
        sample = "" if index is None else f" (sample {index})"
        super().__init__(f"cannot decode{file}{sample}: {cause}")

    def __reduce__(self):
        return _rebuild_decode_error, (self.cause, self.path, self.index)

    def at(self, path: str | None, index: int | None) -> DecodeError:
        """The same error with the path and index of its sample."""
        return DecodeError(self.cause, path=path, index=index)


def _rebuild_decode_error(cause: str, path: str | None, index: int | None) -> DecodeError:
    return DecodeError(cause, path=path, index=index)


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warns at the line outside of cuaug that called it."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "cuaug":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def without_frames(error: BaseException | None) -> None:
    """Drops the tracebacks of an error and of its causes and contexts, which may form a cycle."""
    pending, seen = [error], set()
    while pending:
        current = pending.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            current.__traceback__ = None
            pending += [current.__cause__, current.__context__]
