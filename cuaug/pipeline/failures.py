"""What becomes of a loader's damaged samples: raised, or logged and counted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from cuaug.errors import DecodeError, SourceError
from cuaug.pipeline.job import Job
from cuaug.profiling.recorder import Recorder

__all__ = ["Failures", "OnError"]

log = logging.getLogger("cuaug")

OnError = Literal["raise", "skip", "replace"]
_ACTION = {"skip": "skipped", "replace": "replaced"}


class Failures:
    """The damaged samples that a loader has met so far."""

    def __init__(self, on_error: OnError, recorder: Recorder) -> None:
        self._on_error, self._recorder = on_error, recorder
        self._names: set[str | int | None] = set()

    def report(
        self, job: Job, callback: Callable[[DecodeError], object] | None = None, max_errors: int | None = None
    ) -> None:
        """Raises the errors of a batch's damaged samples, or counts and logs them."""
        error: DecodeError | None = None
        try:
            for error in job.failures():
                if self._on_error == "raise":
                    raise error
                self._recorder.add({"failed": 1})
                name = error.path or error.index
                if name not in self._names:
                    self._names.add(name)
                    log.warning("%s: %s", _ACTION[self._on_error], error)
                if callback is not None:
                    callback(error)
                if max_errors is not None and len(self._names) > max_errors:
                    raise SourceError(
                        f"{len(self._names)} samples have failed, more than max_errors={max_errors}; the last: {error}"
                    ) from error
        finally:
            del error  # its traceback holds this frame
