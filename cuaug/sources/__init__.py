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

`open_source` picks the class from a path, list or Dataset and uses its default arguments; `Loader` calls it.
`Source` is the protocol for sources of your own. Modules with a leading underscore hold shared helpers.

_arrow_values.py     values of Arrow columns: encoded images, and labels of any type
_bytes.py            reads whole files as bytes, with few system calls
_coco_fields.py      fields of COCO files, checked: a ValueError names the field, and what it must be
_coco_masks.py       rasterizes COCO segmentations: polygons and run lengths, bit-identical to pycocotools
_example.py          parses tf.train.Example messages with protobuf, without TensorFlow
_file_ranges.py      where samples lie in files or in memory, for native code to read them
_fingerprint.py      digests of a source: `fingerprint` of its samples and labels
_hdf5_file.py        opens datasets of an untrusted HDF5 file, without reaching other files
_hdf5_heap.py        reads HDF5's variable-length values from the global heaps, without HDF5
_hdf5_rows.py        reads rows of an HDF5 dataset, after checking the stored chunks that hold them
_index.py            indexes of shards: byte offsets of samples, made by one scan of the shard and kept on disk
_items.py            items of Datasets: splits them into image and label, and converts images to paths, bytes or arrays
_labels.py           labels: selects a record's label fields and decodes them from bytes
_parquet_pages.py    reads columns of a row group within a memory limit
_record_files.py     base of MDS shards and LitData chunks: files of records, each found by a table of offsets
_remote_index.py     indexes of remote shards: read from the local cache or from beside the shard
_remote_shards.py    reads samples of remote shards: from an iteration's read-ahead, or by requests of their own
_repr.py             `repr` of sources: class, number of samples, location
_row_group_ahead.py  decodes the row groups of the next batches of an iteration, into the cache that samples read from
_row_groups.py       row groups of Parquet files: opening files here and remote, reading footers
_shards.py           base of sources whose samples lie in several large files (shards): file patterns, sample lookup
_subset_concat.py    sources made of sources: torch's Subset (also from random_split) and ConcatDataset
_text.py             helpers for list files and tables: opening text, parsing numbers, resolving paths
coco.py              COCO annotation files: detection, instance segmentation and keypoints
csv_file.py          a table with a column of paths and columns of labels
data_frame.py        a pandas DataFrame with a column of paths
files.py             image files: a list of paths, (path, label) pairs, a pattern
from_dataset.py      a torch Dataset, or any object with `len(dataset)` and `dataset[i]`
from_iterable.py     an iterable Dataset without items by index, such as Hugging Face's streaming ones
hdf5.py              HDF5 files with a dataset of images and datasets of labels
jpeg_index_file.py   the file of a source's JPEG index: where it lies, and opening it
list_file.py         a text file with a path and its label on each line
litdata.py           LitData's optimized chunks
lmdb_environment.py  LMDB environments whose values are images
mds.py               MosaicML's MDS shards
open.py              `open_source`: picks the source for a path, a list or a Dataset
pairs.py             images and masks in two folders, paired by name
parquet.py           Parquet files with a column of encoded images
remote.py            images behind URLs: http, https, s3 and gs, or any fsspec protocol that the user allows
source.py            the protocol of a source: samples by index
tar_shards.py        tar files in WebDataset's layout: members with the same name up to the first dot form one sample
tfrecord.py          TFRecord files of tf.train.Example messages, read without TensorFlow
video_index.py       indexes of videos, in memory and on disk
videos.py            clips of video files
"""

from __future__ import annotations

from cuaug.remote import RemoteOptions
from cuaug.sources.coco import Coco
from cuaug.sources.datasets import FromDataset, FromIterable
from cuaug.sources.files import Files, Pairs
from cuaug.sources.open import open_source
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
