"""Images as arrays: recognized, opened as tensors, and handed back in the form they came in.

image_types.py  recognizes images, clips and their batches
interop.py      images of any library as tensors, and back
"""
