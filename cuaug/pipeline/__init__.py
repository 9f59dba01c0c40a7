"""From sample indices to finished batches.

workers.py  threads
reading.py  one sample's bytes, header and label
job.py      one batch: read, plan, run, and what becomes of damaged samples
host.py     ... decode and augment on the CPU
cuda.py     ... decode and augment on a GPU, and hand over
memory.py   memory of batches, used again
stats.py    what was done and how long it took
"""
