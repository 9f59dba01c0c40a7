"""A progress bar on a terminal, for commands."""

from __future__ import annotations

import time
from typing import TextIO

_INTERVAL_SECONDS = 0.2
_WIDTH = 24
_MIN_SECONDS = 3.0  # before it estimates the time left


class Progress:
    """Counts items on one line, which it rewrites; it prints nothing where the stream is no terminal.

    Args:
        stream: where it prints.
        total: number of items; 0: unknown.
        unit: name of the items, in the plural.
    """

    def __init__(self, stream: TextIO, total: int = 0, unit: str = "files") -> None:
        self.total, self.done = total, 0
        self._stream, self._unit = stream, unit
        self._is_terminal = stream.isatty()
        self._begin, self._shown = time.monotonic(), 0.0
        self._is_drawn = False

    def advance(self, note: str = "") -> None:
        """Counts an item; shows `note` behind the count."""
        self.done += 1
        now = time.monotonic()
        if self._is_terminal and (now - self._shown > _INTERVAL_SECONDS or self.done == self.total):
            self._shown, self._is_drawn = now, True
            text = ", ".join(filter(None, [self._line(now - self._begin), note]))
            print(f"\r\033[K{text}", end="", file=self._stream, flush=True)

    def _line(self, seconds: float) -> str:
        if self.done > self.total:  # unknown, or counted too low
            return f"{self.done} {self._unit}"
        filled = _WIDTH * self.done // self.total
        left = seconds / self.done * (self.total - self.done)
        estimate = f", {_duration(left)} left" if seconds > _MIN_SECONDS and self.done < self.total else ""
        return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {self.done} of {self.total} {self._unit}{estimate}"

    def clear(self) -> None:
        """Removes the line, so that others can print."""
        if self._is_drawn:
            self._is_drawn = False
            print("\r\033[K", end="", file=self._stream, flush=True)


def _duration(seconds: float) -> str:
    """Such as 42 s, 3:07 or 1:02:33."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minutes}:{second:02}" if minutes else f"{second} s"
