"""The exceptions cuaug raises on purpose; all derive from `CuaugError`."""

from __future__ import annotations

__all__ = ["CuaugError", "DecodeError", "DeviceError", "LoaderError", "TransformError", "without_frames"]


class CuaugError(Exception):
    """Base of every exception that cuaug defines."""


class TransformError(CuaugError, ValueError):
    """A transform's arguments, or the images it was given, do not fit together."""


class DeviceError(CuaugError, RuntimeError):
    """A device cannot do what was asked of it: no driver, no CuPy, a kernel that does not compile."""


class LoaderError(CuaugError, RuntimeError):
    """Arguments of a loader, source, sampler or cache that do not fit, or a loader that cannot go on.

    That is one that was closed, timed out, or was given something unusable by its source.
    """


class DecodeError(CuaugError, ValueError):
    """One encoded image could not be read or decoded.

    Attributes:
        path: the file's path, or None where the bytes came from memory.
        index: the sample's index in its source, or None where it is not known.
        cause: one line that says what is wrong.
    """

    def __init__(self, cause: str, *, path: str | None = None, index: int | None = None) -> None:
        self.cause = cause
        self.path = path
        self.index = index
        where = "" if path is None else f" {path!r}"
        which = "" if index is None else f" (sample {index})"
        super().__init__(f"cannot decode{where}{which}: {cause}")

    def __reduce__(self):
        return _rebuild_decode_error, (self.cause, self.path, self.index)

    def at(self, path: str | None, index: int | None) -> DecodeError:
        """The same error, naming the sample that it belongs to."""
        return DecodeError(self.cause, path=path, index=index)


def _rebuild_decode_error(cause: str, path: str | None, index: int | None) -> DecodeError:
    return DecodeError(cause, path=path, index=index)


def without_frames(error: BaseException | None) -> None:
    """Drops the tracebacks of an error and of all that led to it, by causes and contexts, which may form a cycle."""
    left, seen = [error], set()
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            left += [each.__cause__, each.__context__]
