"""Writes sequential JPEGs that Pillow does not write.

They have any sampling factors, Huffman tables, component names, quantizers of 16 bits and restart intervals.
"""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from PIL import Image

_DIAGONAL = sorted(range(64), key=lambda i: (i // 8 + i % 8, i // 8 if (i // 8 + i % 8) % 2 else i % 8))
ZIGZAG = np.array(_DIAGONAL)
"""Place in a block, row by row, of each coefficient in zigzag order (T.81, Figure A.6)."""

_FREQUENCY, _POSITION = np.arange(8)[:, None], np.arange(8)[None, :]
_DCT = np.cos((2 * _POSITION + 1) * _FREQUENCY * np.pi / 16) * np.where(_FREQUENCY == 0, np.sqrt(1 / 8), 0.5)


class Tables(NamedTuple):
    """Huffman codes as in a DHT segment: the number of codes of 1 to 16 bits, then their symbols."""

    dc: bytes
    ac: bytes

    @staticmethod
    def codes(table: bytes) -> dict[int, tuple[int, int]]:
        """{symbol: (code, bits)} (T.81, annex C)."""
        found, code, symbols = {}, 0, iter(table[16:])
        for bits, count in enumerate(table[:16], start=1):
            for _ in range(count):
                found[next(symbols)] = code, bits
                code += 1
            code <<= 1
        return found


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def _standard() -> Tables:
    """The tables of T.81, K.3: those of a gray JPEG by Pillow."""
    out = io.BytesIO()
    Image.new("L", (8, 8)).save(out, "JPEG")
    data, found, at = out.getvalue(), {}, 0
    while (at := data.find(b"\xff\xc4", at)) >= 0:
        (length,) = struct.unpack_from(">H", data, at + 2)
        found[data[at + 4]] = data[at + 5 : at + 2 + length]
        at += length
    return Tables(found[0], found[0x10])


def _long(symbols: bytes, short: int) -> bytes:
    """Codes of 2, 3, ... bits for `short` rare symbols, and of 16 bits for the rest."""
    counts = bytearray(16)
    counts[1 : 1 + short] = b"\1" * short
    counts[15] = len(symbols) - short
    return bytes(counts) + symbols[::-1]


STANDARD = _standard()
LONG = Tables(_long(STANDARD.dc[16:], 9), _long(STANDARD.ac[16:], 8))
"""Tables whose codes mostly have 16 bits."""


class _Bits:
    def __init__(self) -> None:
        self.text: list[str] = []

    def write(self, value: int, bits: int) -> None:
        if bits:
            self.text.append(format(value, f"0{bits}b"))

    def bytes(self) -> bytes:
        """Padded by ones, with stuffed zeros."""
        text = "".join(self.text)
        text += "1" * (-len(text) % 8)
        return int(text or "0", 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\0")


def _write_value(bits: _Bits, codes: dict[int, tuple[int, int]], run: int, value: int) -> None:
    size = abs(value).bit_length()
    bits.write(*codes[run << 4 | size])
    bits.write(value if value > 0 else value + (1 << size) - 1, size)


@dataclass
class JpegWriter:
    """Options of a JPEG; `write` encodes samples.

    Attributes:
        factors: (h, v) of each component.
        quantizer: (64,) steps, row by row, of all components.
        wide: write the steps in 16 bits.
        interval: MCUs between restart markers; 0: none.
        ids: names of the components.
        marker: of the frame; 0xC1: extended sequential.
        before: segments after SOI, such as JFIF's or Adobe's.
        tables: Huffman codes.
    """

    factors: Sequence[tuple[int, int]]
    quantizer: np.ndarray = field(default_factory=lambda: np.full(64, 8))
    wide: bool = False
    interval: int = 0
    ids: Sequence[int] = (1, 2, 3, 4)
    marker: int = 0xC0
    before: bytes = b""
    tables: Tables = STANDARD

    @property
    def mcu(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        if len(self.factors) == 1:
            return 8, 8
        return 8 * max(v for _, v in self.factors), 8 * max(h for h, _ in self.factors)

    def write(self, height: int, width: int, seed: int, noise: float = 0.3) -> bytes:
        """A JPEG of smooth random samples with a share of noise."""
        scan = b"".join(bytes((self.ids[i], 0)) for i in range(len(self.factors)))
        steps = self.quantizer[ZIGZAG]
        return b"".join(
            [
                b"\xff\xd8",
                self.before,
                segment(0xDB, b"\x10" + steps.astype(">u2").tobytes() if self.wide else b"\0" + bytes(steps.tolist())),
                segment(self.marker, self.frame(height, width)),
                segment(0xC4, b"\0" + self.tables.dc),
                segment(0xC4, b"\x10" + self.tables.ac),
                segment(0xDD, struct.pack(">H", self.interval)) if self.interval else b"",
                segment(0xDA, bytes([len(self.factors)]) + scan + b"\0\x3f\0"),
                self.entropy_coded(self.coefficients(height, width, seed, noise)),
                b"\xff\xd9",
            ]
        )

    def frame(self, height: int, width: int) -> bytes:
        components = b"".join(bytes((self.ids[i], h << 4 | v, 0)) for i, (h, v) in enumerate(self.factors))
        return struct.pack(">BHHB", 8, height, width, len(self.factors)) + components

    def coefficients(self, height: int, width: int, seed: int, noise: float) -> list[np.ndarray]:
        """Of each component: (MCU rows, MCU columns, v, h, 64) in zigzag order."""
        rng, planes = np.random.default_rng(seed), []
        rows, columns = -(-height // self.mcu[0]), -(-width // self.mcu[1])
        for h, v in self.factors if len(self.factors) > 1 else [(1, 1)]:
            size = rows * v * 8, columns * h * 8
            coarse = Image.fromarray(rng.integers(0, 256, (4, 5), dtype=np.uint8))
            smooth = np.asarray(coarse.resize(size[::-1], Image.Resampling.BICUBIC), dtype=float)
            samples = smooth * (1 - noise) + rng.integers(0, 256, size) * noise - 128
            blocks = samples.reshape(rows, v, 8, columns, h, 8).transpose(0, 3, 1, 4, 2, 5)
            found = np.rint((_DCT @ blocks @ _DCT.T).reshape(rows, columns, v, h, 64) / self.quantizer)
            planes.append(np.clip(found, -1023, 1023).astype(int)[..., ZIGZAG])
        return planes

    def entropy_coded(self, planes: list[np.ndarray]) -> bytes:
        dc_codes, ac_codes = map(Tables.codes, self.tables)
        rows, columns = planes[0].shape[:2]
        bits, parts, last = _Bits(), [], [0] * len(planes)
        for number in range(rows * columns):
            if self.interval and number and number % self.interval == 0:
                parts += [bits.bytes(), bytes((0xFF, 0xD0 + (number // self.interval - 1) % 8))]
                bits, last = _Bits(), [0] * len(planes)
            for i, plane in enumerate(planes):
                for block in plane[divmod(number, columns)].reshape(-1, 64).tolist():
                    _write_value(bits, dc_codes, 0, block[0] - last[i])
                    last[i] = block[0]
                    self._write_ac(bits, ac_codes, block)
        return b"".join([*parts, bits.bytes()])

    @staticmethod
    def _write_ac(bits: _Bits, codes: dict[int, tuple[int, int]], block: list[int]) -> None:
        run = 0
        for value in block[1:]:
            if not value:
                run += 1
                continue
            for _ in range(run // 16):
                bits.write(*codes[0xF0])
            _write_value(bits, codes, run % 16, value)
            run = 0
        if run:
            bits.write(*codes[0])


ADOBE_RGB = segment(0xEE, b"Adobe\0\x64\0\0\0\0\0")
FACTORS = {
    "gray": [(1, 1)],
    "gray of odd factors": [(3, 2)],
    "4:4:4": [(1, 1)] * 3,
    "4:4:4, doubled": [(2, 2)] * 2 + [(2, 1)],
    "4:2:2": [(2, 1), (1, 1), (1, 1)],
    "4:2:0": [(2, 2), (1, 1), (1, 1)],
    "4:4:0": [(1, 2), (1, 1), (1, 1)],
    "4:1:1": [(4, 1), (1, 1), (1, 1)],
    "4:1:0": [(4, 2), (1, 1), (1, 1)],
    "a quarter down": [(1, 4), (1, 1), (1, 1)],
    "two kinds of chroma": [(2, 2), (2, 1), (1, 2)],
    "odd factors": [(3, 1)] * 3,
    "one chroma down": [(1, 4), (1, 1), (1, 2)],
    "subsampled luma": [(1, 1), (2, 2), (2, 2)],
    "luma across, chroma down": [(2, 1), (1, 2), (1, 2)],
}


@functools.cache  # five modules of tests ask for it when they are imported
def every_kind() -> dict[str, bytes]:
    """A small JPEG of each kind that the GPU's kernels decode."""
    chroma = FACTORS["4:2:0"]
    files = {name: JpegWriter(factors).write(37, 53, 1) for name, factors in FACTORS.items()}
    files |= {f"restarts after {n}": JpegWriter(chroma, interval=n).write(70, 75, 2) for n in (1, 5, 6, 65535)}
    files["restarts, gray"] = JpegWriter([(1, 1)], interval=3).write(19, 50, 3)
    files["stored as RGB"] = JpegWriter(FACTORS["4:4:4"], before=ADOBE_RGB).write(20, 30, 4)
    files["named RGB"] = JpegWriter(chroma, ids=b"RGB").write(20, 30, 5)
    files["extended"] = JpegWriter(chroma, marker=0xC1).write(20, 30, 6)
    files["steps of 16 bits"] = JpegWriter(chroma, np.linspace(1, 900, 64).astype(int), wide=True).write(20, 30, 7)
    files["long codes"] = JpegWriter(chroma, tables=LONG).write(40, 200, 8)
    files["one pixel"] = JpegWriter(chroma).write(1, 1, 9)
    files["a row"] = JpegWriter(chroma).write(1, 300, 10)
    files["a column"] = JpegWriter(FACTORS["4:2:2"]).write(300, 2, 11)
    return files
