"""The tests marked `cuda` that run on the fake GPU, and the excluded ones with reasons."""

from __future__ import annotations

__all__ = ["EXCLUDED", "ROOMS"]

ROOMS = ("tests/cuda", "tests/loader", "tests/images/test_interop.py")

DECODER = "checks the behavior of a GPU's decoder"
LONG = "takes many seconds, and uses tensors as other tests do"
MEMORY = "measures the GPU's memory"
PROGRAMS = "starts other programs, which have no fake GPU"

#: By folder, file, or start of a test's name.
EXCLUDED = {
    "tests/cuda/test_arrays.py::test_a_chain_that_draws_from_a_generator": "needs a torch.Generator on a GPU",
    "tests/cuda/test_arrays.py::test_a_captured_graph_holds_no_transform": "needs a CUDA graph",
    "tests/cuda/test_arrays.py::test_cupy": "needs CuPy arrays",
    "tests/cuda/test_decoding.py::test_damaged_scans": DECODER,
    "tests/cuda/test_decoding.py::test_memory_that_torch_caches": MEMORY,
    "tests/cuda/test_kernels.py": "compares CUDA kernels with the CPU build, which replaces them here",
    "tests/cuda/test_loader.py::test_a_captured_graph_reads_batches": "needs a CUDA graph",
    "tests/cuda/test_loader.py::test_no_allocations_after_warm_up": MEMORY,
    "tests/cuda/test_loader.py::test_close_frees_the_memory": MEMORY,
    "tests/cuda/test_loader.py::test_kernels_for_the_chain": "compiles kernels",
    "tests/cuda/test_loader.py::test_memory_of_giant_images_is_freed": MEMORY,
    "tests/cuda/test_loader.py::test_reserved_memory_is_flat_over_epochs": MEMORY,
    "tests/cuda/test_pixel_functions.py": "compares CUDA kernels with the CPU build, which replaces them here",
    "tests/cuda/test_processes.py": PROGRAMS,
    "tests/loader/test_arguments.py": LONG,
    "tests/loader/test_migration_hints.py": LONG,
    "tests/loader/test_cache.py": LONG,
    "tests/loader/test_damaged.py": LONG,
    "tests/loader/test_distributed.py": PROGRAMS,
    "tests/loader/test_epochs.py::test_epochs_are_exact": LONG,
    "tests/loader/test_frameworks.py": LONG,
    "tests/loader/test_growth.py": LONG,
    "tests/loader/test_interrupts.py": PROGRAMS,
    "tests/loader/test_memory.py": PROGRAMS,
    "tests/loader/test_process_ends.py": PROGRAMS,
    "tests/loader/test_processes.py": PROGRAMS,
    "tests/loader/test_profile.py": LONG,
    "tests/loader/test_recipes.py": PROGRAMS,
    "tests/loader/test_reproducible.py": LONG,
    "tests/loader/test_resume.py": LONG,
    "tests/loader/test_shutdown.py": LONG,
    "tests/loader/test_state.py": LONG,
    "tests/loader/test_under_load.py": LONG,
    "tests/loader/test_bottleneck.py": LONG,
    "tests/properties": "compares kernels with formulas; the CPU build replaces the CUDA kernels here",
    "tests/commands/test_doctor.py": "checks the installed CUDA packages",
}
