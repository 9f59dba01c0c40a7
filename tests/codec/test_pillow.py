"""Errors about files that Pillow does not read."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import EpsImagePlugin

from cuaug.codec import CpuDecoder, read_header
from cuaug.errors import DecodeError


def test_a_sound_tiff_of_a_kind_that_pillow_does_not_read():
    done, data = cv2.imencode(".tiff", np.zeros((4, 5, 3), np.float32))
    assert done
    with pytest.raises(
        DecodeError, match=r"starts as a TIFF file, but .*, or it is of a kind that Pillow does not read"
    ):
        read_header(data.tobytes())


def test_no_program_is_run_to_decode(tmp_path, monkeypatch):
    """Pillow lets Ghostscript run PostScript, and an endless program would block the thread forever."""
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    ghostscript.chmod(0o755)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", str(ghostscript))
    data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n%%EndComments\n{ } loop\n%%EOF\n"
    with pytest.raises(DecodeError, match="format EPS, and cuaug does not read"):
        CpuDecoder().decode(read_header(data))
    assert not (tmp_path / "ran").exists()
