"""Sources of images and labels. `cuaug.Loader(source)` takes each of these classes.

| class | reads | extra |
|---|---|---|
| `Files` | paths, (path, label) pairs, or a directory with one folder per class | |
| `ListFile` | a text file, "path label" per line | |
| `Csv` | a table with a column of paths | |
| `Coco` | COCO annotation files: boxes, masks, keypoints | |
| `Pairs` | a folder of images and one of masks, paired by name | |
| `TarShards` | tar files in WebDataset's layout | |
| `TFRecord` | tf.train.Example messages | `cuaug[tfrecord]` |
| `Lmdb` | an LMDB environment | `cuaug[lmdb]` |
| `Hdf5` | datasets of an HDF5 file | `cuaug[hdf5]` |
| `Parquet` | a column of encoded images in Parquet files, local or remote | `cuaug[parquet]` |
| `Mds` | MosaicML's MDS shards | |
| `LitData` | chunks of `litdata.optimize` | |
| `DataFrame` | a pandas DataFrame with a column of paths | |
| `FromDataset` | a torch Dataset, or any object with len() and items by index | |
| `FromIterable` | an iterable Dataset, such as Hugging Face's streaming ones | |
| `Videos` | clips of video files | `cuaug[video]` |
| `Remote` | URLs: http, https, s3, gs and others | `cuaug[remote]` |
| `ChecksumSource` | another source, and verifies its bytes | |

`open_source` picks the class from a path, list or Dataset and uses its default arguments; `Loader` calls it.
`Source` is the protocol for sources of your own. Modules with a leading underscore hold shared helpers.
"""

from __future__ import annotations

from cuaug.remote import RemoteOptions
from cuaug.sources.checked import ChecksumSource
from cuaug.sources.coco import Coco
from cuaug.sources.csv_file import Csv
from cuaug.sources.data_frame import DataFrame
from cuaug.sources.files import Files
from cuaug.sources.from_dataset import FromDataset
from cuaug.sources.from_iterable import FromIterable
from cuaug.sources.hdf5 import Hdf5
from cuaug.sources.list_file import ListFile
from cuaug.sources.litdata import LitData
from cuaug.sources.lmdb_environment import Lmdb
from cuaug.sources.mds import Mds
from cuaug.sources.open import open_source
from cuaug.sources.pairs import Pairs
from cuaug.sources.parquet import Parquet
from cuaug.sources.remote import Remote
from cuaug.sources.source import Source, label_path_names, optional_method
from cuaug.sources.tar_shards import TarShards
from cuaug.sources.tfrecord import TFRecord
from cuaug.sources.videos import Videos

__all__ = [
    "ChecksumSource",
    "Coco",
    "Csv",
    "DataFrame",
    "Files",
    "FromDataset",
    "FromIterable",
    "Hdf5",
    "ListFile",
    "LitData",
    "Lmdb",
    "Mds",
    "Pairs",
    "Parquet",
    "Remote",
    "RemoteOptions",
    "Source",
    "TFRecord",
    "TarShards",
    "Videos",
    "label_path_names",
    "open_source",
    "optional_method",
]
