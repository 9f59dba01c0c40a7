"""From sample indices to finished batches.

workers.py  threads
job.py      one batch: read, parse, plan
host.py     ... decode and augment on the CPU
cuda.py     ... decode and augment on a GPU, and hand over
memory.py   memory of batches, used again
stats.py    what was done and how long it took
"""
