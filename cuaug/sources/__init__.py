"""Where images and labels come from: one class for each kind, all of them usable as `cuaug.Loader(source)`.

| class | reads | needs |
|---|---|---|
| `Files` | paths, (path, label) pairs, a directory with a folder per class | |
| `ListFile` | "path label" a line | |
| `Csv` | a table with a column of paths | |
| `Coco` | COCO's annotation files: boxes, masks, keypoints | |
| `TarShards` | tar files in WebDataset's layout | |
| `TFRecord` | tf.train.Example messages | `cuaug[tfrecord]` |
| `Lmdb` | an LMDB environment | `cuaug[lmdb]` |
| `Hdf5` | datasets of an HDF5 file | `cuaug[hdf5]` |
| `FromDataset` | a torch Dataset | |
| `Remote` | urls | `cuaug[remote]` |
| `ChecksumSource` | another source, and compares its bytes with checksums | |

`Loader` makes them itself, by `open_source`, where default arguments do. `Source` says what a source of your own needs.
Modules whose names begin with an underscore hold what several of these share.
"""

from __future__ import annotations

from cuaug.sources.checked import ChecksumSource
from cuaug.sources.coco import Coco
from cuaug.sources.csv_file import Csv
from cuaug.sources.files import Files
from cuaug.sources.from_dataset import FromDataset
from cuaug.sources.hdf5 import Hdf5
from cuaug.sources.list_file import ListFile
from cuaug.sources.lmdb_environment import Lmdb
from cuaug.sources.open import open_source
from cuaug.sources.remote import Remote
from cuaug.sources.source import Source, optional_method
from cuaug.sources.tar_shards import TarShards
from cuaug.sources.tfrecord import TFRecord

__all__ = [
    "ChecksumSource",
    "Coco",
    "Csv",
    "Files",
    "FromDataset",
    "Hdf5",
    "ListFile",
    "Lmdb",
    "Remote",
    "Source",
    "TFRecord",
    "TarShards",
    "open_source",
    "optional_method",
]
