"""From sample indices to finished batches.

pipeline.py        what the batches of one device share
job.py             one batch in progress: runs its work on the threads, step by step
part.py            the work: from samples of a batch to images, and replacements of damaged ones
cpu_pipeline.py    decoding and augmentation on the CPU
cuda/              decoding and augmentation on a GPU
reader.py          samples' bytes, headers and labels
clip_reader.py     clips: which frames they hold, their videos, and their pixels
label_reader.py    reads the files that labels name: masks, and further pictures of a sample
image_table.py     the images of a batch as one table: a row each, and objects for what is no common JPEG
samples.py         a batch's samples and images, how they become a `Batch`, and its digest
planning.py        a batch's plan, for its images and for further pictures
native_work.py     the native work of a batch, without Python: reading files, decoding and augmenting samples
pending.py         `PendingCacheEntry`: an image that the decoded cache lacks
config.py          settings of a loader; the default number of threads and of prefetched batches; sources as streams
resolve_device.py  the choice of a loader's device
thread_pool.py     worker threads
iteration.py       finished batches in order, batches in progress ahead of the consumer, and damaged samples
shared.py          the pipelines of calls without a loader: `cuaug.decode` and `cuaug.ray.Augment`
"""
