"""A loader's kernels are replaced by ones compiled for its chain, without a change of the pixels."""

from __future__ import annotations

from typing import Any

import torch

from cuaug import transforms as T
from cuaug.devices import specialize
from tests.dry_run import CHAIN
from tests.support.fake_cuda import FakeFunction

#: Two passes: contrast needs the mean of the resized image.
COLOR = [T.RandomResizedCrop(24), T.ColorJitter(0.4, 0.4, 0.4), T.Normalize([0.5] * 3, [0.2] * 3)]


def test_later_batches_run_on_kernels_for_the_chain(equal_loaders, image_files, fake, monkeypatch):
    polls: list[int] = []

    def kernel(key: tuple[Any, specialize.Values]) -> FakeFunction | None:
        signature = key[1].signature
        polls.append(signature)
        return FakeFunction(fake, f"{signature:#x}") if polls.count(signature) > 2 else None

    monkeypatch.setattr(specialize, "STABLE_SAMPLES", 16)
    monkeypatch.setattr(specialize, "_kernel", kernel)
    for chain, full in ((CHAIN, ["resample"]), (COLOR, ["augment", "augment"])):
        fake.entries.clear()
        polls.clear()
        on_gpu = equal_loaders(image_files, chain, epochs=2, batch_size=4, dtype=torch.float16)
        passes = len(full)
        assert fake.entries[: 6 * passes] == full * 6, "the first batches run on the full kernels"
        assert sorted(fake.entries[-passes:]) == sorted(f"{signature:#x}" for signature in set(polls))
        kernels = on_gpu.stats().kernels
        assert kernels == {
            "full": sum(name in full for name in fake.entries),
            "specialized": len(fake.entries) - kernels["full"],
        }
        assert f"kernel launches: full {kernels['full']}, specialized" in str(on_gpu.stats())
        on_gpu.close()
