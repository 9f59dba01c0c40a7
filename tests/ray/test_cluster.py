"""`cuaug.ray.Augment` on a local Ray cluster: equal bits for any workers, batches and deaths."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cuaug.ray
from tests.support.ray.rows import CHAIN, DAMAGED, columns, photo

ray: Any = pytest.importorskip("ray")

pytestmark = pytest.mark.slow
COUNT, BROKEN = 48, 17


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray's name; on a busy machine its workers would hardly run
    ray.init(num_cpus=3, object_store_memory=200_000_000, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def rows(cluster) -> Any:
    items = [{"id": i, "bytes": DAMAGED if i == BROKEN else photo(i), "name": f"n{i}"} for i in range(COUNT)]
    return ray.data.from_items(items, override_num_blocks=8)


def images(dataset: Any) -> dict[int, np.ndarray]:
    """The images by id; each id comes once, with its name."""
    found = dataset.take_all()
    assert all(row["name"] == f"n{row['id']}" for row in found)
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["bytes"] for row in found}


def check(found: dict[int, np.ndarray]) -> None:
    """All rows but the damaged one, with the bits of one call in this process."""
    want = cuaug.ray.Augment(CHAIN, seed=5, device="cpu", on_error="skip")(columns(COUNT, damaged=(BROKEN,)))
    assert sorted(found) == want["id"].tolist() == [i for i in range(COUNT) if i != BROKEN]
    for i, image in zip(want["id"].tolist(), want["bytes"], strict=True):
        assert image.dtype == found[i].dtype and np.array_equal(image, found[i]), i


SETTINGS = {"transforms": CHAIN, "seed": 5, "on_error": "skip"}


@pytest.mark.parametrize(("workers", "batch_size"), [(1, 7), (2, 16), (3, 5)])
def test_any_number_of_workers_gives_the_same_bits(rows, workers, batch_size):
    pool = ray.data.ActorPoolStrategy(size=workers)
    check(
        images(rows.map_batches(cuaug.ray.Augment, fn_constructor_kwargs=SETTINGS, compute=pool, batch_size=batch_size))
    )


@pytest.mark.long
def test_a_killed_worker_changes_nothing(rows, tmp_path):
    deadline = time.time() + 600

    class Slow(cuaug.ray.Augment):
        """Leaves a file with its process number for each batch, and waits until three processes have left one."""

        def __call__(self, batch: Any) -> Any:
            found = super().__call__(batch)
            (tmp_path / f"{os.getpid()}-{batch['id'][0]}").touch()
            while len({path.name.partition("-")[0] for path in tmp_path.iterdir()}) < 3 and time.time() < deadline:
                time.sleep(0.05)
            time.sleep(0.2)
            return found

    killed: list[int] = []

    def kill_one() -> None:
        while time.time() < deadline:
            if len(pids := processes(tmp_path)) == 3:
                killed.append(min(pids))
                os.kill(killed[0], signal.SIGKILL)
                return
            time.sleep(0.01)

    killer = threading.Thread(target=kill_one)
    killer.start()
    pool = ray.data.ActorPoolStrategy(size=3)
    found = images(rows.map_batches(Slow, fn_constructor_kwargs=SETTINGS, compute=pool, batch_size=3))
    killer.join()
    assert killed and len(processes(tmp_path)) >= 3
    begun = len(list(tmp_path.glob(f"{killed[0]}-*")))
    assert begun < len(list(tmp_path.iterdir())), "killed before its work was done"
    check(found)


def processes(folder: Path) -> set[int]:
    return {int(path.name.partition("-")[0]) for path in folder.iterdir()}


@pytest.mark.long
def test_actors_have_as_many_threads_as_ray_gives_them_cpus(rows):
    class Count(cuaug.ray.Augment):
        def __call__(self, batch: Any) -> Any:
            from cuaug import ray as module

            return {"cpus": np.array([module._assigned_cpus()])}

    pool = ray.data.ActorPoolStrategy(size=1)
    options = {"fn_constructor_kwargs": SETTINGS, "compute": pool, "batch_size": COUNT}
    assert rows.map_batches(Count, **options).take(1) == [{"cpus": 1}]
    assert rows.map_batches(Count, num_cpus=2, **options).take(1) == [{"cpus": 2}]
    assert cuaug.ray._assigned_cpus() is None, "the driver"


def test_the_error_of_a_damaged_row_reaches_the_driver(rows):
    with pytest.raises(ray.exceptions.RayTaskError, match=f"cannot decode 'id={BROKEN}'"):
        rows.map_batches(cuaug.ray.Augment(CHAIN), batch_size=8).take_all()


@pytest.mark.long
def test_the_programs_of_the_page(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray Train writes to ~/ray_results
    page = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
    data, train = (code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "import ray" in code)
    for number in range(20):
        file = tmp_path / "photos" / "train" / "ab"[number % 2] / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(photo(number))
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 2))
    names: dict[str, Any] = {"chain": CHAIN, "model": model}
    for code in (data, train):
        code = code.replace('"photos/train"', repr(str(tmp_path / "photos" / "train")))
        code = code.replace('"augmented"', repr(str(tmp_path / "augmented")))
        exec(code, names)
    written = ray.data.read_parquet(str(tmp_path / "augmented")).take_all()
    assert len(written) == 20 and {row["image"].shape for row in written} == {(3, 24, 24)}
    assert names["result"].error is None
