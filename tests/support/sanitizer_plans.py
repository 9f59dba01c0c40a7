"""Plans that together reach every line of the kernels; test_sanitizers.py runs them in its own process.

Each source is an allocation of exactly the region that the plan reads, so one byte too many is out of bounds.
"""

from __future__ import annotations

import hashlib
import itertools
import sys

import numpy as np

from cuaug.devices.cpu import CpuExecutor
from cuaug.plan import Border, Filter, Layout, PackingFormat, Plan, Type, operations
from cuaug.plan.layout import ANTIALIASED_FILTERS, OP, POINT_OPERATIONS, WARP_FILTERS, OpCode
from tests.support.pixel_programs import make_operation

KEYS = np.array([[1, 2]], dtype=np.uint32)
#: By operation code: of a level or a color, at any place or at this one. The last has all instructions.
PIXEL_FUNCTIONS = [
    make_operation(f"def program(pixel, x, y):\n    return {result}\n")
    for result in (
        "pixel * 0.5",
        "pixel * sum(pixel)",
        "pixel * x",
        "(1.0 if not pixel[0] <= x and y < 2 or pixel[1] == 0 else 0.0) - abs(sqrt(exp(log(pixel) / 2))) + "
        "max(sin(floor(-pixel)), min(cos(y), noise()))",
    )
]
PIXEL_FUNCTIONS.append(
    make_operation("def program(image):\n    return image[-2, 1] + image[2, -2] - image[0, 1]\n", radius=2)
)
TILES = (None, (7, 13), (8, 64))
SIZES = ((1, 1), (1, 9), (13, 2), (31, 45), (40, 131))
BYTES = {Type.UINT8: 1, Type.FLOAT16: 2, Type.BFLOAT16: 2, Type.FLOAT32: 4}


def image(h: int, w: int, kind: Type) -> np.ndarray:
    pixels = np.random.default_rng(h * w).integers(0, 256, (h, w, 3), dtype=np.uint8)
    return pixels if kind == Type.UINT8 else pixels.astype(np.float32) / np.float32(255)


def geometries(h: int, w: int):
    """Yields names and functions that write crops, pads and resizes into a plan."""
    for filter, antialias in itertools.product(Filter, (False, True)):
        if filter in ANTIALIASED_FILTERS and not antialias:
            continue
        for size in ((1, 1), (5, 70), (h, 3), (33, w + 1)):
            yield (
                f"resize {filter.name} {antialias} {size}",
                lambda p, f=filter, a=antialias, s=size: p.resize(*s, filter=f, antialias=a),
            )

        def corner(p, f=filter, a=antialias):
            p.resize(12, 18, filter=f, antialias=a)
            p.crop(0, 17, 1, 1)
            p.flip()

        def part(p, f=filter, a=antialias):
            p.crop(h // 2, w // 3, h - h // 2, w - w // 3)
            p.flip(vertical=True)
            p.resize(9, 7, filter=f, antialias=a)

        yield f"corner {filter.name} {antialias}", corner
        yield f"part {filter.name} {antialias}", part
    for before, after in itertools.product(Border, Border):

        def borders(p, before=before, after=after):
            p.pad(3, 0, 50, 2, border=before, fill=0.25)
            p.resize(11, 17, filter=Filter.BICUBIC)
            p.pad(4, 30, 0, 2, border=after, fill=(0.1, 0.2, 0.3)[: p.channels])

        yield f"borders {before.name} {after.name}", borders


def pillow_resizes(h: int, w: int):
    """Of uint8 images."""
    for filter, version in itertools.product(Filter, (12, 13)):

        def pillow(p, f=filter, version=version):
            p.pillow = version
            p.crop(h // 2, w // 3, h - h // 2, w - w // 3)
            p.resize(3, w + 9, filter=f)
            p.rot90(1)
            p.pad(3, 0, 5, 2, border=Border.WRAP)
            p.resize(70, 11, filter=f)
            p.pad(4, 30, 0, 2, border=Border.REFLECT)

        yield f"pillow {filter.name} {version}", pillow


def packings():
    """Patches and tiles of whole images."""
    for packing in (
        PackingFormat(6, 2),
        PackingFormat(3, order=Layout.HWC),
        PackingFormat(12, is_tiles=True, padded=False),
    ):

        def packed(p, packing=packing):
            p.resize(24, 36)
            p.rot90(1)
            p.packing = packing

        yield f"packing {packing}", packed


def warps(h: int, w: int):
    """Yields matrices, perspectives and fields with geometry around them, and resizes of rotated images."""
    turned = np.array([[0.8, 0.5, -2.0], [-0.6, 0.9, 1.5], [0, 0, 1]])
    deep = turned + [[0, 0, 0], [0, 0, 0], [0.3 / w, -0.2 / h, 0]]
    field = np.random.default_rng(3).normal(0, 4, (3, 5, 2)).astype(np.float32)
    kinds = {"matrix": (turned, None), "perspective": (deep, None), "field": (np.eye(3), field), "both": (deep, field)}
    borders = itertools.islice(itertools.cycle(Border), h, None)  # different borders for each size
    for filter, (name, (matrix, moves)) in itertools.product(WARP_FILTERS, kinds.items()):
        border = next(borders)

        def write(p, filter=filter, border=border, matrix=matrix, moves=moves):
            p.crop(h // 3, w // 4, h - h // 3, w - w // 4)
            p.flip(vertical=True)
            p.warp(matrix, 19, 37, filter=filter, border=border, fill=0.25, field=moves)
            p.rot90(1)
            p.pad(2, 0, 1, 3, border=border, fill=0.5)

        yield f"warp {name} {filter.name} {border.name}", write
    for filter in WARP_FILTERS:

        def corner(p, filter=filter):
            p.warp(turned, 16, 40, filter=filter, border=Border.EDGE)
            p.crop(15, 39, 1, 1)
            p.pad(33, 8, 3, 2, fill=0.5)

        yield f"warp's corner {filter.name}", corner
    for filter in WARP_FILTERS:
        border = next(borders)

        def turn(p, filter=filter, border=border):
            p.transpose()
            p.pad(1, 2, 0, 3, border=border, fill=0.5)
            p.resize(21, 15, filter=filter)
            p.flip()
            p.pad(1, 2, 0, 3, border=border, fill=0.5)

        yield f"turned resize {filter.name} {border.name}", turn


def every_operation(p: Plan) -> None:
    p.append(operations.clahe(1, p.limit, 2.0, (4, 3)))
    p.append(operations.brightness(1, p.limit, 1.2))
    p.append(operations.saturation(1, p.limit, 0.3))
    p.append(operations.hue(1, p.limit, 0.2))
    p.append(operations.contrast(1, p.limit, 1.5))
    p.lut(np.arange(256)[::-1])
    p.append(operations.erase(1, (0, 1, 9, 7), 0.5))
    p.append(operations.erase_with_noise(1, (2, 0, 30, 40), KEYS, 0.5, 0.2))
    p.append(operations.mask(1, 0.3, KEYS, 0.5))
    p.flip()
    p.append(operations.contrast(1, p.limit, 0.5))
    p.append(operations.grayscale(1))
    p.append(operations.posterize(1, p.limit, 5))
    p.append(operations.solarize(1, p.limit, 0.5 * p.limit))
    p.append(operations.gamma(1, p.limit, 0.7, 1.1))
    p.append(operations.grid(1, 7.5, 0.4, 0.3, (0.2, 0.7), 0.5))
    p.append(operations.noise(1, p.limit, KEYS, 0.0, 0.1))
    p.append(operations.shot_noise(1, p.limit, KEYS, 0.01))
    for operation in PIXEL_FUNCTIONS:
        operation.write(p, None, **{"noise keys": KEYS} if operation._draws_noise else {})
    for operation in POINT_OPERATIONS:  # a new one needs no line above
        if not (operation.positional or operation.measures or operation.name.startswith(("LUT", "FUNCTION"))):
            row = np.zeros(1, OP)
            row["code"], row["a"], row["limit"] = OpCode[operation.name], 0.5, p.limit
            p.append(row)


def every_statistic(p: Plan) -> None:
    """Each statistic, measured by a resampling and by a gathering pass, and used by both."""
    for turned in (False, True):
        for make in (operations.autocontrast, operations.equalize, operations.equalize):
            if turned:
                h, w = (int(size[0]) for size in p.sizes)
                p.warp(np.eye(3) + 0.01, h, w)
            p.append(make(1, p.limit))


def every_filter(p: Plan) -> None:
    """Each filter with geometry that shares its pass, on the source and on the result of another filter."""
    h, w = (int(size[0]) for size in p.sizes)
    p.crop(h // 3, w // 4, h - h // 3, w - w // 4)
    p.jpeg(10)
    p.pad(2, 3, 1, 0, border=Border.REFLECT)
    p.jpeg(90)
    p.flip()
    p.transpose()
    for border in Border:
        p.convolve(np.full(9, 1 / 9), np.full(3, 1 / 3), border=border)
        p.flip(vertical=True)
        p.stencil([(-1, 2, 0.5), (0, 0, 0.25), (2, -3, 0.25)], frame=1, border=border)
        p.stencil([(0, 0, 0.5), (3, -40, 0.5)], border=border)
        p.pad(0, 1, 1, 0, border=border, fill=0.5)
        p.stencil([(-1, 2, 0.5), (2, -3, 0.25)], border=border)
        p.flip()
    for size in (3, 5, 7):
        p.median(size)
        p.flip()
        p.pad(1, 0, 0, 1, border=Border.CONSTANT, fill=0.25)


def every_measure(p: Plan) -> None:
    """Each statistic before each, in one pass and in consecutive passes, of filtered and transposed images."""
    makes = {
        "equalize": lambda: operations.equalize(1, p.limit),
        "clahe": lambda: operations.clahe(1, p.limit, 2.5, (3, 5)),
        "contrast": lambda: operations.contrast(1, p.limit, 1.3),
        "autocontrast": lambda: operations.autocontrast(1, p.limit),
    }
    for before, after in itertools.product(makes, makes):
        p.append(makes[before]())
        p.append(makes[after]())
        p.median(3)
        p.transpose()


def bytes_alone(p: Plan) -> None:
    """uint8 passes: flipped, transposed, with each border, small and large, on the source and after a pass."""
    h, w = (int(size[0]) for size in p.sizes)
    p.crop(h // 3, w // 4, h - h // 3, w - w // 4)
    for border in Border:
        p.append(operations.contrast(1, p.limit, 1.3))
        p.flip()
        p.pad(2, 1, 3, 9, border=border, fill=40)
        p.append(operations.erase(1, (1, 0, 4, 30), 7.0))
        p.append(operations.gamma(1, p.limit, 0.7))
        p.median(3)
        p.append(operations.equalize(1, p.limit))
        p.transpose()
        p.append(operations.scale(1, 1.0, (1, 2, 3), limit=p.limit))
        p.barrier()
        p.flip(vertical=True)
    for size in (3, 5, 7):
        p.barrier()
        p.flip()
        p.median(size)
        p.pad(0, 2, 1, 0, border=Border.WRAP)


def matrix_alone(p: Plan) -> None:
    p.flip()
    p.pad(2, 1, 3, 9, fill=40)
    p.append(operations.saturation(1, p.limit, 0.3))


def colors(p: Plan) -> None:
    """uint8 programs that mix channels, or depend on the place."""
    h, w = (int(size[0]) for size in p.sizes)
    p.crop(h // 3, w // 4, h - h // 3, w - w // 4)
    p.transpose()
    p.pad(2, 1, 3, 9, border=Border.EDGE)
    p.append(operations.hue(1, p.limit, 0.2))
    p.append(operations.noise(1, p.limit, KEYS, 0.0, 25.0))
    p.append(operations.erase(1, (1, 0, 4, 30), 7.0))


ALWAYS = {
    "bytes": bytes_alone,
    "operations": every_operation,
    "statistics": every_statistic,
    "measures": every_measure,
    "filters": every_filter,
}


def run(write, source: np.ndarray, kind: Type, target: Type, layout: Layout, channels: int, isa: str, tile) -> bytes:
    plan = Plan([source.shape[0]], [source.shape[1]], source_type=kind, channels=channels)
    write(plan)
    tables = plan.compile(target, layout)
    (h,), (w,) = tables.sizes()
    out = np.empty(h * w * channels * BYTES[target], dtype=np.uint8)
    ((y0, x0, y1, x1),) = tables.regions().tolist()
    exact = source[y0:y1, x0:x1].copy()
    CpuExecutor(tables, isa=isa, tile=tile).run(0, exact, out.ctypes.data, y=y0, x=x0)
    return out.tobytes()


def run_stack(write, images: np.ndarray, isa: str, threads: int) -> list[bytes]:
    """Runs a stack of images; the last one ends with its allocation."""
    plan = Plan([images.shape[1]] * len(images), [images.shape[2]] * len(images))
    write(plan)
    tables = plan.compile(Type.FLOAT32, Layout.HWC)
    (h, *_), (w, *_) = tables.sizes()
    out = np.empty((len(images), h, w, 3), dtype=np.float32)
    program = CpuExecutor(tables, isa=isa)
    targets = np.array([one.ctypes.data for one in out], dtype=np.uint64)
    program.run_stack(images, targets, views=1, threads=threads)
    return [one.tobytes() for one in out]


def main(every: int, isas: list[str]) -> None:
    """Runs each `every`-th plan with these instruction sets; all must agree.

    Prints the number of plans and a digest of their results. NaNs are left out: their signs depend on the processor.
    """
    count = number = 0
    digest = hashlib.sha256()
    wrong: list[str] = []
    outputs = itertools.cycle(itertools.product(Type, Layout, (3, 1)))
    plans = [
        *(
            (h, w, kind, [*geometries(h, w), *warps(h, w), *ALWAYS.items()])
            for h, w in SIZES
            for kind in (Type.UINT8, Type.FLOAT32)
        ),
        *((h, w, Type.UINT8, [*pillow_resizes(h, w), *packings()]) for h, w in SIZES),
    ]
    for h, w, kind, writes in plans:
        source = image(h, w, kind)
        for name, write in writes:
            number += 1
            if number % every and name not in ALWAYS:
                continue
            target, layout, channels = next(outputs)
            results = {run(write, source, kind, target, layout, channels, isa, tile) for isa in isas for tile in TILES}
            if len(results) != 1:
                wrong.append(f"{name} of {h} x {w} {kind.name}: tiles or instruction sets change the result")
            digest.update(results.pop())
            count += 1
    for target, layout, channels in itertools.product(Type, Layout, (3, 1)):
        run(every_operation, image(31, 45, Type.UINT8), Type.UINT8, target, layout, channels, isas[0], (7, 13))
        count += 1
    made_of_bytes = (bytes_alone, matrix_alone, colors, lambda p: p.flip(), lambda p: p.rot90(1))
    for size, write in itertools.product(SIZES, made_of_bytes):
        source = image(*size, Type.UINT8)
        results = {
            run(write, source, Type.UINT8, Type.UINT8, Layout.HWC, 3, isa, tile) for isa in isas for tile in TILES
        }
        if len(results) != 1:
            wrong.append(f"bytes of {size}: tiles or instruction sets change the result")
        digest.update(results.pop())
        count += 1
    wild = image(31, 45, Type.FLOAT32)
    wild[::5, ::3] = [np.nan, np.inf, -np.inf]
    wild[1::5, ::3] = [1e30, -1e30, 1e-45]
    for target in Type:
        for write in (*ALWAYS.values(), lambda p: p.resize(9, 80, filter=Filter.BICUBIC)):
            run(write, wild, Type.FLOAT32, target, Layout.CHW, 3, isas[0], None)
            count += 1
    for write in (every_statistic, bytes_alone, lambda p: p.resize(9, 80)):
        stack = np.stack([image(31, 45, Type.UINT8)] * 5)
        if len({one for isa in isas for threads in (1, 3) for one in run_stack(write, stack, isa, threads)}) != 1:
            wrong.append("a stack's images: threads or instruction sets change the result")
        count += 1
    # At the end, so that the sanitizer has seen every plan even if a mistake changes results.
    assert not wrong, wrong[:5]
    print(count, "plans", digest.hexdigest())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
