"""The process and the machine: compiled library, forks, memory, CPU limits, ranks.

arguments.py        checks of arguments: each raises an error that names the argument
c_headers.py        functions and structs of the kernel sources, as ctypes types
cpus.py             CPUs and memory that this process may use; threads outside a loader
disk.py             everything that cuaug writes to disk: indexes, caches and compiled kernels
extras.py           imports of optional libraries: cuaug's extras
fork.py             what a forked child must renew; objects that each process makes for itself
huge_pages.py       host memory in mappings of its own, with huge pages where large
limits.py           size limits of one sample
migration_hints.py  names and arguments of other libraries, and what cuaug has in their place
native.py           the compiled kernel library: CPU kernels, planner, JPEG code and random draws, through ctypes
npy.py              arrays as .npy and .npz files, without pickling
ranks.py            rank, world size and GPU of this process; ranks agree on their samples
threads.py          threads of cuaug, which end before the interpreter does
"""
