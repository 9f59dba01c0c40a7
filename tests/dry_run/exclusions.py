"""Which tests for a GPU run on pretended tensors, which do not, and why not."""

from __future__ import annotations

__all__ = ["LEFT_OUT", "ROOMS"]

ROOMS = ("tests/cuda", "tests/loader", "tests/test_interop.py")

DECODER = "asks what a GPU's decoder does"
LONG = "takes many seconds, and does little with tensors that others do not"
MEMORY = "counts the GPU's memory"
PROGRAMS = "starts programs of its own, in which nothing is pretended"

#: Folders, files, or the beginnings of tests' names.
LEFT_OUT = {
    "tests/codec/test_processes.py": PROGRAMS,
    "tests/cuda/test_arrays.py::test_a_chain_that_draws_from_a_generator": "needs a torch.Generator on a GPU",
    "tests/cuda/test_arrays.py::test_cupy": "needs arrays of CuPy's",
    "tests/cuda/test_decoding.py::test_damaged_scans": DECODER,
    "tests/cuda/test_kernels.py": "compares the GPU's kernels with the host's, which stand in for them",
    "tests/cuda/test_loader.py::test_a_captured_graph_reads_batches": "needs a CUDA graph",
    "tests/cuda/test_loader.py::test_a_split_that_is_tried_out": DECODER,
    "tests/cuda/test_loader.py::test_after_warm_up_no_memory_is_asked_for": MEMORY,
    "tests/cuda/test_loader.py::test_close_gives_the_memory_back": MEMORY,
    "tests/cuda/test_loader.py::test_each_loader_has_a_stream_of_its_own": "needs streams",
    "tests/cuda/test_loader.py::test_giant_images_do_not_stay": MEMORY,
    "tests/cuda/test_loader.py::test_reserved_memory_is_flat_over_epochs": MEMORY,
    "tests/cuda/test_processes.py": PROGRAMS,
    "tests/loader/test_arguments.py": LONG,
    "tests/loader/test_migration_hints.py": LONG,
    "tests/loader/test_cache.py": LONG,
    "tests/loader/test_checksums.py": LONG,
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
    "tests/properties": "compares kernels with formulas, and the host's stand in for the GPU's",
    "tests/commands/test_doctor.py": "asks what is installed for a GPU",
}
