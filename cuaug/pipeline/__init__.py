"""From sample indices to finished batches.

pipeline.py         what the batches of one device share
job.py              one batch: its states, and its damaged samples
task_steps.py       tasks of a batch on worker threads, step by step
cpu.py, cuda.py     decoding and augmentation on each device
reader.py           samples' bytes, headers and labels
samples.py          a batch's samples and images, and how they become a `Batch`
planning.py         a batch's plan
config.py           settings of a loader; the default number of threads and of prefetched batches
thread_pool.py      worker threads
prefetch.py         batches in progress ahead of the consumer
buffer_pool.py      memory of batches, reused
"""
