"""The process and the machine: compiled library, forks, memory, CPU limits, ranks.

cpu_limits.py      CPUs and memory that this process may use, within the limits of its control groups (containers)
disk.py            everything that cuaug writes to disk: indexes, caches, compiled kernels, shards
distributed.py     rank, world size and GPU of this process
extras.py          imports of optional libraries: cuaug's extras
fork.py            one registry of everything that a forked child must renew
huge_pages.py      host memory in mappings of its own, with huge pages where large
intraop.py         the number of threads that share the images of a batch outside a loader
libc.py            the C library
native.py          the compiled kernel library: CPU kernels, planner, JPEG code and random draws, through ctypes
npy.py             reads arrays that `np.save` wrote, without unpickling
npz.py             dicts of arrays as .npz files, which `numpy.load` reads too; nothing is pickled
per_process.py     objects that each process makes for itself, such as open files and locks
placement.py       CPUs for the worker threads of one rank: near its GPU, shared with the other ranks of the machine
rank_agreement.py  the ranks of torch.distributed agree on their samples, through its key-value store
"""
