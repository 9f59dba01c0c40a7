"""What a loader's time is spent on, by name; `Stats` says what each stage is."""

from __future__ import annotations

__all__ = ["CONSUMER", "WORK", "stages"]

WORK = ("read", "parse", "plan", "decode", "augment", "targets", "finish")
_GPU = ("wait_for_gpu", "gpu_decode", "gpu_augment")
CONSUMER = ("wait_for_first_batch", "wait_for_data", "wait_for_consumer")


def stages(device: str) -> tuple[str, ...]:
    """The stages that a loader on "cpu" or "cuda" has."""
    return WORK + (_GPU if device == "cuda" else ()) + CONSUMER
