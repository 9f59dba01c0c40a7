"""Conversion of float32 to the type and layout of the batch, against torch's conversions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug._runtime.native import ISAS
from cuaug.devices import CpuExecutor
from cuaug.plan import Layout, PackingFormat, Plan, Type, operations
from tests.references import conversions as reference
from tests.references.packing import patches
from tests.support import tolerances
from tests.support.run_plans import assert_close, assert_same, plan_for, run_one
from tests.support.strategies import images, sizes

TORCH = {Type.FLOAT16: torch.float16, Type.BFLOAT16: torch.bfloat16}


def stored(values, dtype, layout=Layout.HWC, channels=3):
    """Runs float32 `values` as an image through an empty plan."""
    pixels = -(-values.size // 3)
    image = np.zeros((1, pixels, 3), dtype=np.float32)
    image.reshape(-1)[: values.size] = values.reshape(-1)
    out = run_one(plan_for(image, channels=channels), image, dtype, layout)
    return (out.transpose(1, 2, 0) if layout == Layout.CHW else out).reshape(-1)[: values.size]


def by_torch(values, dtype):
    """The bits as uint16."""
    return torch.from_numpy(values).to(TORCH[dtype]).view(torch.int16).numpy().view(np.uint16)


def assert_same_numbers(got_bits, want_bits, infinity):
    """Asserts equal bits; any NaN equals a NaN, and +0 equals -0, which a weighted sum cannot distinguish."""
    got, want = (np.asarray(bits).view(np.uint16).astype(np.int64) for bits in (got_bits, want_bits))
    nan = (want & 0x7FFF) > infinity
    assert (((got & 0x7FFF) > infinity) == nan).all(), "NaNs in different places"
    zero = ((want & 0x7FFF) == 0) & ((got & 0x7FFF) == 0)
    wrong = (got != want) & ~nan & ~zero
    assert not wrong.any(), f"{wrong.sum()} differ, such as {got[wrong][0]:#06x}, wanted {want[wrong][0]:#06x}"


INFINITY = {Type.FLOAT16: 0x7C00, Type.BFLOAT16: 0x7F80}


def around(values):
    """Each value and midpoint, with the neighboring float32s; both signs."""
    values = values.astype(np.float32)
    with np.errstate(over="ignore"):
        middle = ((values[:-1].astype(np.float64) + values[1:]) / 2).astype(np.float32)
        some = np.concatenate([values, middle])
        some = np.concatenate([some, np.nextafter(some, np.float32(np.inf)), np.nextafter(some, np.float32(-np.inf))])
    return np.concatenate([some, -some])


SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, 1e-38, 3.4028235e38, 65504, 65519.996, 65520, 65536, 2.0**-25],
    dtype=np.float32,
)


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(
    ("dtype", "every_value", "as_bits"),
    [
        (Type.FLOAT16, reference.half_values, reference.half_bits),
        (Type.BFLOAT16, reference.bfloat16_values, reference.bfloat16_bits),
    ],
    ids=["float16", "bfloat16"],
)
def test_every_value_and_midpoint(dtype, every_value, as_bits, layout):
    values = np.concatenate([around(every_value()), SPECIAL])
    got = stored(values, dtype, layout)
    assert_same_numbers(got, by_torch(values, dtype), INFINITY[dtype])
    finite = ~np.isnan(values)
    assert_same_numbers(got[finite], as_bits(values[finite]), INFINITY[dtype])


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=200), st.sampled_from(list(TORCH)))
def test_any_bits(bits, dtype):
    values = np.array(bits, dtype=np.uint32).view(np.float32)
    assert_same_numbers(stored(values, dtype), by_torch(values, dtype), INFINITY[dtype])


@given(st.lists(st.floats(width=32), min_size=1, max_size=200))
def test_float32_is_unchanged(values):
    values = np.array(values, dtype=np.float32)
    assert_same(stored(values, Type.FLOAT32), values)


def test_uint8_is_rounded_and_saturated():
    levels = around(np.arange(0, 257, dtype=np.float32))
    values = np.concatenate([levels / np.float32(255), SPECIAL])
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values * np.float32(255)
    # 0.49999997 + 0.5 is 1 in float32: half a step too early, but the same on every device.
    early = scaled == np.nextafter(np.float32(0.5), np.float32(0))
    got = stored(values, Type.UINT8)
    assert_same(got[~early], reference.to_uint8(scaled[~early]))
    number = ~np.isnan(values) & ~early
    by_torch = torch.from_numpy(scaled[number]).clamp(0, 255).add(0.5).to(torch.uint8).numpy()
    assert_same(got[number], by_torch)


@given(images(sizes(8000)), st.sampled_from(list(Type)), st.sampled_from(list(Layout)), st.sampled_from([1, 3]))
def test_layouts_and_channels(image, dtype, layout, channels):
    """All channels, or the first, lie where the layout puts them, rounded to the type."""
    plan = plan_for(image, channels=channels)
    got = run_one(plan, image, dtype, layout)
    h, w, _ = image.shape
    assert got.shape == ((h, w, channels) if layout == Layout.HWC else (channels, h, w))
    got = got if layout == Layout.HWC else got.transpose(1, 2, 0)
    want = image[..., :channels]
    if dtype == Type.UINT8:
        assert_same(got, want)
        return
    exact = want.astype(np.float32) * np.float32(1 / 255)
    if dtype == Type.FLOAT32:
        assert_close(got, exact, tolerances.EXACT)
    else:
        assert_same_numbers(got, by_torch(exact, dtype), INFINITY[dtype])


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("dtype", Type)
@pytest.mark.parametrize("width", [64, 48, 61, 7])
def test_streaming_stores_give_the_same_bits(width, dtype, layout):
    """The number of samples in the tables decides: a large batch of whole cache lines is written with them."""
    image = np.random.default_rng(0).integers(0, 256, (48, 71, 3), dtype=np.uint8)
    for isa in ISAS:
        written = []
        for samples in (1, (16 << 20) // (48 * width * 3) + 1):
            plan = Plan([48] * samples, [71] * samples)
            plan.crop(0, 3, 48, width)
            plan.append(operations.scale(samples, 1.01, 3.0))
            memory = np.full(48 * width * 3 * 4 + 128, 0xA5, dtype=np.uint8)
            CpuExecutor(plan.compile(dtype, layout), isa=isa).run(samples - 1, image, -(-memory.ctypes.data // 64) * 64)
            written.append(memory[-memory.ctypes.data % 64 :][: 48 * width * 3 * 4 + 64])
        np.testing.assert_array_equal(*written)


@given(st.data(), st.sampled_from(list(Type)), st.sampled_from(list(Layout)), st.sampled_from([1, 3]))
def test_patches(data, dtype, order, channels):
    """The values of rows of pixels, and none outside the target: in tiles, turned, on every instruction set."""
    size, merge = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    across = st.integers(1, max(1, 120 // (size * merge)))
    image = data.draw(images((size * merge * data.draw(across), size * merge * data.draw(across))))
    plan, turned = plan_for(image, channels=channels), data.draw(st.booleans())
    if turned:
        plan.transpose()
    whole = run_one(plan, image, dtype, Layout.CHW)
    options = {"isa": data.draw(st.sampled_from(list(ISAS))), "tile": data.draw(st.sampled_from([None, (5, 23)]))}
    plan = plan_for(image, channels=channels)
    if turned:
        plan.transpose()
    plan.packing = PackingFormat(size, merge, 1, order)
    got = run_one(plan, image, dtype, Layout.CHW, **options)
    want = patches(whole[None], size, merge, 1, order.name.lower())
    assert_same(got.reshape(want.shape), want)


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("packing", [PackingFormat(16), PackingFormat()])
def test_large_batches_of_patches_and_of_larger_memory(packing, layout):
    """They take no streaming stores, which would write past the rows."""
    image = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    samples = (16 << 20) // image.size + 1
    widths = [64] * (samples - 1) + [80]
    written = []
    for count in (2, samples):
        plan = Plan([48] * count, widths[-count:])
        plan.packing = packing
        memory = np.full(48 * 80 * 3 + 128, 0xA5, dtype=np.uint8)
        CpuExecutor(plan.compile(Type.UINT8, layout)).run(0, image, -(-memory.ctypes.data // 64) * 64)
        written.append(memory[-memory.ctypes.data % 64 :][: 48 * 80 * 3 + 64])
    np.testing.assert_array_equal(*written)
    if not packing.patch:
        stored = written[0][: 48 * 80 * 3].reshape((48, 80, 3) if layout == Layout.HWC else (3, 48, 80))
        stored = stored if layout == Layout.HWC else stored.transpose(1, 2, 0)
        assert_same(stored[:, :64], image)
        assert (stored[:, 64:] == 0xA5).all()
