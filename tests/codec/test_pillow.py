"""What is said of files that Pillow does not know."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from cuaug.codec import read_header
from cuaug.errors import DecodeError


def test_a_tiff_that_is_sound_but_of_a_kind_that_pillow_does_not_read():
    done, data = cv2.imencode(".tiff", np.zeros((4, 5, 3), np.float32))
    assert done
    with pytest.raises(
        DecodeError, match=r"starts as a TIFF file, but .*, or it is of a kind that Pillow does not read"
    ):
        read_header(data.tobytes())
