"""Sources whose samples lie in a few large files (shards).

shards.py            base of sources whose samples lie in several large files: file patterns, sample lookup
shard_index.py       indexes of shards: byte offsets of samples, made by one scan of the shard and kept on disk
remote_shards.py     samples and indexes of remote shards
tar.py               tar files in WebDataset's layout
tfrecord.py          TFRecord files of tf.train.Example messages
record_files.py      MDS shards and LitData chunks
parquet.py           Parquet files with a column of encoded images
parquet_pages.py     reads columns of a row group up to a limit on the decoded bytes
row_groups.py        row groups of Parquet files: opened here and remote, decoded ahead, and cached
lmdb_environment.py  LMDB environments
hdf5.py              HDF5 files with a dataset of images and datasets of labels
hdf5_rows.py         reads rows of an HDF5 dataset, after checking the stored chunks that hold them
"""
