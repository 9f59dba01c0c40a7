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
arena.py            device memory of the batches in progress: for our JPEG kernels, slots for nvImageCodec
clip_reader.py      `ClipReader`: chooses the frames of clips, and looks for their videos or pixels in the cache
clips.py            clips on their way from a video file to the kernels: which frames a clip holds, and their pixels
cuda_decoding.py    `BatchDecoding`: the decoding of one batch on a GPU, by our kernels, by nvImageCodec, or on the CPU
cuda_producer.py    the producer: decodes batches and launches kernels
digest.py           the digest of a batch: which samples it has, and what was drawn for them
failures.py         what becomes of a loader's damaged samples: raised, or logged and counted
iteration.py        takes finished batches from a pipeline, in order
label_reader.py     reads the files that labels name: masks, and further pictures of a sample
label_upload.py     uploads the tensors in a batch's labels, by one asynchronous copy from pinned memory
native_work.py      the native work of a batch, without Python: reading files, decoding and augmenting samples
nvdec_pool.py       `NvdecPool`: the NVDEC decoders of a loader, one for each thread that decodes
pending.py          `PendingCacheEntry`: an image that the decoded cache lacks
pictures.py         runs the plan of a batch on further pictures of its samples
shared.py           the pipelines of calls without a loader: `cuaug.decode` and `cuaug.ray.Augment`
staged_clips.py     `StagedClips`: the planes of a batch's clips in pinned memory
staging.py          pinned memory for the input of batches on a GPU: JPEGs, or parts of them
streams.py          sources without samples by index: the options of a Loader that they exclude
"""
