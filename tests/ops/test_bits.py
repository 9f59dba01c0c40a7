"""Random programs give NumPy's float32 bits: in the interpreter, and compiled."""

from __future__ import annotations

import ctypes
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug._runtime.native import BEST_ISA, ISAS, KERNEL_DIRECTORY
from cuaug.devices import cpu_functions
from cuaug.plan import Layout, Plan, Type
from cuaug.plan.pixel_function import PixelFunction
from tests.references import pixel_function
from tests.support.pixel_programs import HEAD, make_operation, random_program
from tests.support.run_plans import run_one

NUMBER, TRIPLE, KEY = 0.3, (0.7, 1.25, -0.4), (12345, 67890)


def plan_with(operation: Any, image: np.ndarray, normalized: bool = False) -> Plan:
    kind = Type.UINT8 if image.dtype == np.uint8 else Type.FLOAT32
    plan = Plan([image.shape[0]], [image.shape[1]], source_type=kind, normalized=normalized)
    keys = {"noise keys": np.array([KEY], np.uint32)} if operation._draws_noise else {}
    operation.write(plan, None, **keys)
    return plan


def expected(source: str, image: np.ndarray, normalized: bool = False) -> np.ndarray:
    white = 255.0 if image.dtype == np.uint8 else 1.0
    pixel = image.astype(np.float32) * np.float32(1.0 / white)
    result = pixel_function.evaluate(source, pixel, {"number": NUMBER, "triple": TRIPLE}, KEY)
    return result if normalized else pixel_function.saturate(result, white)


def images(choices: random.Random, kind: Any) -> np.ndarray:
    rng = np.random.default_rng(choices.randint(0, 2**31))
    shape = choices.randint(1, 9), choices.randint(1, 70), 3
    if kind == np.uint8:
        return rng.integers(0, 256, shape, dtype=np.uint8)
    image = rng.normal(0.5, 0.5, shape).astype(np.float32)
    image.flat[:: choices.randint(3, 50)] = choices.choice((0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-42, 3e38))
    return image


@given(st.randoms(use_true_random=False), st.sampled_from([np.uint8, np.float32]), st.booleans(), st.integers(0, 2))
def test_the_interpreter_gives_the_bits_of_numpy(choices, kind, normalized, radius):
    source = random_program(choices, radius)
    image = images(choices, kind)
    normalized = normalized and kind == np.float32
    operation = make_operation(source, radius=radius, number=NUMBER, triple=TRIPLE)
    want = expected(source, image, normalized)
    # uint8 results are floats until they are stored: `to_float` would scale them.
    for isa in (name for name, number in ISAS.items() if number <= BEST_ISA):
        plan = plan_with(operation, image, normalized)
        plan.is_float = True
        got = run_one(plan, image, Type.FLOAT32, Layout.HWC, isa=isa)
        same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
        assert same.all(), f"{isa}, {source}: {got[~same][:4]}, wanted {want[~same][:4]}"


RED = "[0] + ".join(f"pixel[{dy}, {dx}]" for dy in range(-3, 4) for dx in range(-3, 4)) + "[0]"

#: Bodies of programs that are rarely random.
BODIES = {
    "one draw for two names": ("a = b = noise()\n    return pixel + a - b", 0),
    "one draw for two tuples": ("r, g, b = s, t, u = pixel + noise()\n    return (r - s, g - t, b - u)", 0),
    "clamp with its limits exchanged": ("return clamp(pixel, 0.75, 0.25)", 0),
    "one channel of 49 pixels": (f"return {RED}", 3),
    "one channel of 49 draws": ("return pixel + " + " + ".join(f"noise()[{i % 3}]" for i in range(49)), 0),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_give_the_bits_of_numpy(name):
    body, radius = BODIES[name]
    source = f"{HEAD}\n    {body}\n"
    operation = make_operation(source, radius=radius, number=NUMBER, triple=TRIPLE)
    image = images(random.Random(0), np.float32)
    got, want = run_one(plan_with(operation, image), image, Type.FLOAT32, Layout.HWC), expected(source, image)
    assert ((got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))).all()


def operations_of(count: int, seed: int) -> list[tuple[str, Any]]:
    """Random programs and their operations; every third one reads neighbors."""
    choices = random.Random(seed)
    programs = [(2 if i % 3 == 2 else 0, random_program(choices, 2 if i % 3 == 2 else 0)) for i in range(count)]
    return [
        (source, make_operation(source, radius=radius, number=NUMBER, triple=TRIPLE)) for radius, source in programs
    ]


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS)
def test_compiled_functions_give_the_bits_of_the_interpreter(isa, tmp_path, monkeypatch):
    """Many functions in one program, which takes the compiler less time."""
    if ISAS[isa] > BEST_ISA:
        pytest.skip(f"this processor has no {isa}")
    programs = operations_of(40, seed=1)
    functions = list({operation._function: 0 for _, operation in programs})  # some are equal
    addresses = compile_together(functions, isa, tmp_path)
    choices = random.Random(2)
    for source, operation in programs:
        function = operation._function
        image = images(choices, choices.choice([np.uint8, np.float32]))
        want = run_one(plan_with(operation, image), image, Type.FLOAT32)
        monkeypatch.setattr(cpu_functions, "_addresses", {function.number: addresses[function.number]})
        compiled = cpu_functions.with_compiled_functions(plan_with(operation, image).compile())
        assert addresses[function.number] in compiled.ops["function"]
        got = run_one(plan_with(operation, image), image, Type.FLOAT32)
        monkeypatch.setattr(cpu_functions, "_addresses", {})
        assert (got.view(np.uint32) == want.view(np.uint32)).all(), source


def compile_together(functions: list[PixelFunction], isa: str, folder: Path) -> dict[int, int]:
    """The address of each function in a library with all of them."""
    compiler = cpu_functions._compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    sources = "\n".join(
        f'{function.source}\nextern "C" __attribute__((visibility("default"))) void call_{function.number:x}('
        f"const Op* op, const Sample* sample, const Place* at, float (*v)[PIXELS]) {{\n"
        f"    {function.name}(*op, *sample, *at, *reinterpret_cast<PixelBlock*>(v));\n}}"
        for function in functions
    )
    text = cpu_functions._PROGRAM.format(source=sources, name=functions[0].name)
    flags = [*cpu_functions.FLAGS, *cpu_functions.ISA_FLAGS[isa], f"-I{KERNEL_DIRECTORY}", "-shared"]
    subprocess.run([*compiler, *flags, "-x", "c++", "-", "-o", str(folder / "all.so")], input=text.encode(), check=True)
    library = ctypes.CDLL(str(folder / "all.so"))
    return {
        function.number: ctypes.cast(getattr(library, f"call_{function.number:x}"), ctypes.c_void_p).value or 0
        for function in functions
    }
