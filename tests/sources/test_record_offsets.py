"""Records of MDS shards and LitData chunks lie behind the table of their offsets, and within the file."""

from __future__ import annotations

import struct

import pytest

from cuaug import DecodeError
from cuaug.sources import LitData, Mds
from tests.support.sources.writers import samples, write_litdata, write_mds


@pytest.mark.parametrize(
    ("source", "write", "file"), [(Mds, write_mds, "0.mds"), (LitData, write_litdata, "chunk-0-0.bin")]
)
@pytest.mark.parametrize("overlap", [1, 4, 8])
def test_a_record_that_overlaps_the_table_is_damaged(tmp_path, source, write, file, overlap):
    write(tmp_path, samples())
    path = tmp_path / file
    data = bytearray(path.read_bytes())
    (count,) = struct.unpack_from("<I", data)
    begin = 4 + 4 * (count + 1) - overlap
    struct.pack_into("<I", data, 4, begin)
    path.write_bytes(data)
    damaged = source(tmp_path)
    with pytest.raises(DecodeError, match=f"record 0 lies at bytes {begin} to "):
        damaged.read(0)
    assert damaged.read(1) == (samples()[1].data, samples()[1].label)
