"""Videos that several tests read."""

from __future__ import annotations

import pytest

from tests.support.video.loading import COUNT, write


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("videos")
    for number in range(COUNT):
        write(folder / f"{number}.mp4", number)
    return [str(folder / f"{number}.mp4") for number in range(COUNT)]
