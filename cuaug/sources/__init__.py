"""Sources of images and labels. `cuaug.Loader(source)` takes each of these classes.

| class | reads | extra |
|---|---|---|
| `Files` | paths, (path, label) pairs, or a directory with one folder per class | |
| `ListFile` | a text file, "path label" per line | |
| `Csv` | a table with a column of paths | |
| `Coco` | COCO annotation files: boxes, masks, keypoints | |
| `Yolo` | YOLO folders: images/, labels/ and data.yaml | `yolo` |
| `PascalVoc` | Pascal VOC's folders: images and XML files of boxes | |
| `Pairs` | a folder of images and one of masks, paired by name | |
| `TarShards` | tar files in WebDataset's layout | |
| `TFRecord` | tf.train.Example messages | `tfrecord` |
| `Lmdb` | an LMDB environment | `lmdb` |
| `Hdf5` | datasets of an HDF5 file | `hdf5` |
| `Parquet` | a column of encoded images in Parquet files, local or remote | `parquet` |
| `Mds` | MosaicML's MDS shards | |
| `LitData` | chunks of `litdata.optimize` | |
| `DataFrame` | a pandas DataFrame with a column of paths | |
| `FromDataset` | a torch Dataset, or any object with len() and items by index | |
| `FromIterable` | an iterable Dataset, such as Hugging Face's streaming ones | |
| `Videos` | clips of video files | `video` |
| `Remote` | URLs: http, https, s3, gs and others | `remote` |

`open_source` picks the class from a path, list or Dataset and uses its default arguments; `Loader` calls it.
`Source` is the protocol for sources of your own. `sizes` reads the heights and widths of a source's images.

source.py            the protocol `Source`; `repr` and digests of sources
open.py              picks the class from a path, list or Dataset
files.py             image files: paths, (path, label) pairs, a pattern, a directory, or two of images and masks
datasets.py          torch Datasets, and iterable Datasets without items by index
items.py             items of Datasets: splits them into image and label, and converts images to paths, bytes or arrays
tables.py            text files, CSV files and DataFrames with a column of paths
coco.py              COCO annotation files: detection, instance segmentation and keypoints
pascal_voc.py        Pascal VOC: one XML file of boxes for each image
yolo.py              YOLO folders: images/ beside labels/, and the data.yaml that names them
coco_masks.py        rasterizes COCO segmentations: polygons and run lengths, bit-identical to pycocotools
videos.py            clips of video files
remote_files.py      files behind URLs
shards/              several samples in one file
subset_concat.py     sources made of sources: torch's Subset (also from random_split) and ConcatDataset
labels.py            labels: selects a record's label fields and decodes them from bytes
text.py              helpers for list files and tables: opening text, parsing numbers, resolving paths
file_bytes.py        whole files as bytes; where samples lie in files, for native code to read them
image_sizes.py       heights and widths of images, from their headers, kept on disk
jpeg_index_file.py   where the JPEG index of a source is kept
video_index_file.py  indexes of videos, in memory and on disk
"""

from __future__ import annotations

from cuaug.remote import RemoteOptions
from cuaug.sources.coco import Coco
from cuaug.sources.datasets import FromDataset, FromIterable
from cuaug.sources.files import Files, Pairs
from cuaug.sources.image_sizes import sizes
from cuaug.sources.open import open_source
from cuaug.sources.pascal_voc import PascalVoc
from cuaug.sources.remote_files import Remote
from cuaug.sources.shards.hdf5 import Hdf5
from cuaug.sources.shards.lmdb_environment import Lmdb
from cuaug.sources.shards.parquet import Parquet
from cuaug.sources.shards.record_files import LitData, Mds
from cuaug.sources.shards.tar import TarShards
from cuaug.sources.shards.tfrecord import TFRecord
from cuaug.sources.source import Source, label_path_names, optional_method
from cuaug.sources.tables import Csv, DataFrame, ListFile
from cuaug.sources.videos import Videos
from cuaug.sources.yolo import Yolo

__all__ = [
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
    "PascalVoc",
    "Remote",
    "RemoteOptions",
    "Source",
    "TFRecord",
    "TarShards",
    "Videos",
    "Yolo",
    "label_path_names",
    "open_source",
    "optional_method",
    "sizes",
]
