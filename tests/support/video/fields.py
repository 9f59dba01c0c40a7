"""H.264 whose frames are two pictures each, a field of odd and one of even rows; FFmpeg's encoders make none.

All macroblocks are uncompressed (I_PCM), so the frames are known bit for bit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np


def random_frames(count: int, height: int = 64, width: int = 96) -> list[tuple[np.ndarray, ...]]:
    """Planes (H, W), (H / 2, W / 2), (H / 2, W / 2) uint8 of frames."""
    rng = np.random.default_rng(0)
    shapes = (height, width), (height // 2, width // 2), (height // 2, width // 2)
    return [tuple(rng.integers(1, 255, shape, np.uint8) for shape in shapes) for _ in range(count)]


def encode_fields(frames: Sequence[tuple[np.ndarray, ...]], key_distance: int = 8) -> list[tuple[bytes, bytes]]:
    """The two pictures of each frame, behind start codes; every third frame is no reference."""
    height, width = frames[0][0].shape
    encoded, frame_num = [], 0
    for number, planes in enumerate(frames):
        place = number % key_distance
        is_key, is_reference = place == 0, place % 3 != 2
        frame_num = 0 if is_key else frame_num
        fields = []
        for bottom in (0, 1):
            is_idr = is_key and not bottom
            header = _ue(0) + _ue(7) + _ue(0) + f"{frame_num % 16:04b}1{bottom}"  # slice_header, 7.3.3
            header += _ue(number // key_distance % 2) if is_idr else ""
            header += f"{2 * place + bottom:08b}" + ("00" if is_idr else "0" if is_reference else "")
            header += _ue(0) + _ue(1)
            unit = _unit((0x60 if is_reference else 0) | (5 if is_idr else 1), header, _macroblocks(planes, bottom))
            fields.append(unit)
        if is_key:
            fields[0] = _parameter_sets(height // 16, width // 16) + fields[0]
        encoded.append((fields[0], fields[1]))
        frame_num += is_reference
    return encoded


def _parameter_sets(rows: int, columns: int) -> bytes:
    """Main profile, level 3, no VUI; 7.3.2.1.1 and 7.3.2.2."""
    size = _ue(columns - 1) + _ue(rows // 2 - 1)
    sequence = f"{77:08b}{0:08b}{30:08b}" + _ue(0) + _ue(0) + _ue(0) + _ue(4) + _ue(1) + "0" + size + "00100"
    picture = _ue(0) + _ue(0) + "00" + _ue(0) + _ue(0) + _ue(0) + "000" + _ue(0) + _ue(0) + _ue(0) + "100"
    return _unit(0x67, sequence + "1") + _unit(0x68, picture + "1")


def _macroblocks(planes: tuple[np.ndarray, ...], bottom: int) -> list[bytes]:
    fields = [plane[bottom::2] for plane in planes]
    rows, columns = fields[0].shape[0] // 16, fields[0].shape[1] // 16
    return [
        b"".join(
            field[size * row : size * row + size, size * column : size * column + size].tobytes()
            for field, size in zip(fields, (16, 8, 8), strict=True)
        )
        for row in range(rows)
        for column in range(columns)
    ]


def _unit(kind: int, bits: str, macroblocks: Sequence[bytes] = ()) -> bytes:
    data = b""
    for samples in macroblocks:
        data += _bytes(bits + _ue(25)) + samples
        bits = ""
    data += b"\x80" if macroblocks else _bytes(bits)
    return b"\0\0\0\1" + bytes([kind]) + re.sub(b"\0\0([\0-\3])", b"\0\0\3\\1", data)


def _bytes(bits: str) -> bytes:
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def _ue(value: int) -> str:
    bits = f"{value + 1:b}"
    return "0" * (len(bits) - 1) + bits
