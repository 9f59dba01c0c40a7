"""From what a user gives to a cache that is open for a source."""

from __future__ import annotations

from typing import Any

import torch

from cuaug.cache.decoded import DecodedCache
from cuaug.cache.encoded import EncodedCache
from cuaug.codec import codec_version
from cuaug.errors import LoaderError
from cuaug.sources.source import optional_method

__all__ = ["open_cache"]

_NAMES = {"encoded": EncodedCache, "decoded": DecodedCache}


def open_cache(cache: Any, source: Any, device: torch.device, **decoding: bool) -> EncodedCache | DecodedCache | None:
    """A loader's cache, open for its source.

    Args:
        cache: "encoded", "decoded", a cache or None.
        source: what tells its pictures from others is its `fingerprint` and its `cache_key`. A source without is told
            by being the same object, which on a disk would mean nothing to the next process.
        device: the loader's.
        decoding: what pixels depend on beside the source and the decoder.

    Raises:
        LoaderError: not a cache, one of another source, or one on a disk and nothing tells this source from others.
    """
    if cache is None:
        return None
    if isinstance(cache, str) and cache in _NAMES:
        cache = _NAMES[cache]()
    if not isinstance(cache, (EncodedCache, DecodedCache)):
        raise LoaderError(f"cache is 'encoded', 'decoded', an EncodedCache or a DecodedCache, not {cache!r}")
    contents: dict[str, Any] = {
        name: method() for name in ("fingerprint", "cache_key") if (method := optional_method(source, name)) is not None
    }
    if None in (contents.get("fingerprint"), contents.get("cache_key", "")):
        if isinstance(cache, DecodedCache) and cache.directory is not None:
            raise LoaderError(
                f"a cache in {cache.directory!r} would not notice another data set: the source "
                f"{type(source).__name__} has no fingerprint() that tells its pictures from others"
            )
        contents = {"source": f"{type(source).__name__} object {id(source):#x}"}
    if isinstance(cache, EncodedCache):
        cache.open(len(source), contents, source=source)
    else:
        contents |= {**decoding, "decoder": codec_version(), "device": device.type}
        cache.open(len(source), contents, source=source, device=device)
    return cache
