"""From sample indices to finished batches.

job.py       one batch: read, plan, run, and what becomes of damaged samples
host.py      ... decode and augment on the CPU
cuda.py      ... decode and augment on a GPU, and hand over
samples.py   which samples those are, and how they become one batch
planning.py  their plan
reading.py   one sample's bytes, header and label
workers.py   threads
memory.py    memory of batches, used again
stats.py     what was done and how long it took
settings.py  what all batches of a loader have in common
"""
