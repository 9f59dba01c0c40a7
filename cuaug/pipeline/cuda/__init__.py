"""Batches on a GPU.

cuda_pipeline.py   a batch's way on a GPU, from samples to images; the upload of its labels
producer.py        the producer: decodes batches and launches kernels
batch_decoding.py  `BatchDecoding`: the decoding of one batch, by our kernels, by nvImageCodec, or on the CPU
arena.py           device memory of the batches in progress: for our JPEG kernels, slots for nvImageCodec
staging.py         pinned memory for the input of batches: JPEGs, or parts of them
staged_clips.py    `StagedClips`: the planes of a batch's clips in pinned memory; `NvdecPool`: NVDEC decoders
"""
