"""Formats beside JPEG: limits on the structure of their files, and the samples that they hold.

pillow.py         decoding with Pillow
tiff.py           TIFF: limits on the file's structure, and samples as stored by tifffile
avif.py           AVIF: limits on the file's items
jpeg2000.py       JPEG 2000: limits on what the main header claims; the boxes that hold it and AVIF
sample_format.py  depth, sign and order of a file's samples, as the file states them
loss.py           information that a file loses in 8 bits
"""
