"""AVIF files that Pillow does not write: grids, items in several extents."""

from __future__ import annotations

import struct

from PIL import Image

from tests.support.codec.encoded_images import encode


def box(name: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return struct.pack(">I", 8 + len(body)) + name + body


def av1(width: int, height: int) -> tuple[bytes, bytes]:
    """An AV1 stream of a flat gray image, and its av1C box."""
    data = encode(Image.new("L", (width, height), 77), "AVIF", speed=10)
    at = data.index(b"av1C") - 4
    return data[data.index(b"mdat") + 4 :], data[at : at + struct.unpack_from(">I", data, at)[0]]


def avif(
    stream: bytes,
    config: bytes,
    size: tuple[int, int],
    *,
    cells: list[int] | None = None,
    grid: tuple[int, int] = (1, 1),
    output: tuple[int, int] = (1, 1),
    extents: int = 1,
    in_idat: bool = False,
    shared: bool = False,
) -> bytes:
    """A still image, or a grid of it.

    Args:
        stream, config: from `av1`.
        size: (height, width) that the container claims for each coded item.
        cells: item numbers of a grid, from 2 on; None: the image is item 1 alone.
        grid: rows and columns.
        output: (height, width) of the grid.
        extents: number of extents of each coded item.
        in_idat: store the items in the meta box.
        shared: equal items have the same bytes of the file.
    """
    numbers = [1] if cells is None else sorted(set(cells))
    streams = {number: stream for number in numbers}
    items: dict[int, list[bytes]] = {}
    for number, data in streams.items():
        step = -(-len(data) // extents)
        items[number] = [data[i : i + step] for i in range(0, len(data), step)]
    if cells is not None:
        items[1] = [struct.pack(">BBBBHH", 0, 0, grid[0] - 1, grid[1] - 1, output[1], output[0])]
    ispe = box(b"ispe", bytes(4), struct.pack(">II", size[1], size[0]))
    whole = box(b"ispe", bytes(4), struct.pack(">II", output[1], output[0]))
    pixi = box(b"pixi", bytes(4), b"\x01\x08")
    ipco = box(b"ipco", ispe, config, pixi, whole)
    uses = {number: b"\x03\x01\x82\x03" if number in streams else b"\x02\x04\x03" for number in items}
    ipma = box(
        b"ipma", bytes(4), struct.pack(">I", len(items)), *(struct.pack(">H", n) + uses[n] for n in sorted(items))
    )
    infos = [
        box(b"infe", b"\x02\0\0\0", struct.pack(">HH", number, 0), b"av01" if number in streams else b"grid", b"\0")
        for number in sorted(items)
    ]

    def meta(start: int) -> tuple[bytes, bytes]:
        iloc, content, places = b"", b"", dict[bytes, int]()
        for number in sorted(items):
            iloc += struct.pack(">HHHH", number, in_idat, 0, len(items[number]))
            for piece in items[number]:
                place = places.get(piece, len(content))
                if shared:
                    places[piece] = place
                iloc += struct.pack(">II", start + place, len(piece))
                content += piece if place == len(content) else b""
        parts = [
            box(b"hdlr", bytes(8), b"pict", bytes(13)),
            box(b"pitm", bytes(4), struct.pack(">H", 1)),
            box(b"iloc", b"\x01\0\0\0\x44\0", struct.pack(">H", len(items)), iloc),
            box(b"iinf", bytes(4), struct.pack(">H", len(infos)), *infos),
            box(b"iprp", ipco, ipma),
        ]
        if cells is not None:
            dimg = struct.pack(">HH", 1, len(cells)) + b"".join(struct.pack(">H", cell) for cell in cells)
            parts.append(box(b"iref", bytes(4), box(b"dimg", dimg)))
        if in_idat:
            parts.append(box(b"idat", content))
        return box(b"meta", bytes(4), *parts), content

    head = box(b"ftyp", b"avif", bytes(4), b"avifmif1miafMA1A")
    if in_idat:
        return head + meta(0)[0]
    start = len(head) + len(meta(0)[0]) + 8
    made, content = meta(start)
    return head + made + box(b"mdat", content)
