"""From sample indices to finished batches.

pipeline.py   what the batches of one device share
job.py        one batch: read, plan, run, and what becomes of damaged samples
host.py       ... decode and augment on the CPU
cuda.py       ... decode and augment on a GPU, and hand over
samples.py    which samples those are, and how they become one batch
images.py     what became of them, in stacks or each by itself
planning.py   their plan
reading.py    samples' bytes, headers and labels
settings.py   what all batches of a loader have in common
workers.py    threads
choices.py    how many of them, and how many batches ahead
tuning.py     how a GPU shares its JPEGs out, found by trying
memory.py     memory of batches, used again
stats.py      what was done and how long it took: stages.py names what, gpu_times.py tells when the GPU was at it
profile.py    the same for a while, as a timeline (timeline.py)
verdict.py    what of all that holds back training
"""
