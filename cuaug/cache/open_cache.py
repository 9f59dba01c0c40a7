"""`open_cache`: makes a loader's cache and opens it for its source."""

from __future__ import annotations

from typing import Any

import torch

from cuaug.cache.decoded import DecodedCache
from cuaug.cache.encoded import EncodedCache
from cuaug.codec import codec_version
from cuaug.codec.decode_options import DecodeOptions
from cuaug.codec.video.decoder import ffmpeg_version
from cuaug.errors import ArgumentError
from cuaug.sources.source import optional_method


def open_cache(
    cache: Any, source: Any, device: torch.device, decode: DecodeOptions
) -> EncodedCache | DecodedCache | None:
    """Opens a loader's cache for its source.

    Args:
        cache: "decoded", a cache or None.
        source: its `fingerprint` and `cache_key` identify the cached images. Without them the object's id does, which
            means nothing to another process.
        device: the loader's device.
        decode: the loader's, of which a decoded cache keeps those that change pixels.

    Raises:
        LoaderError: `cache` is no cache or belongs to another source; or it is on disk and nothing identifies the
            source.
    """
    if cache is None:
        return None
    if cache == "decoded":
        cache = DecodedCache()
    if not isinstance(cache, (EncodedCache, DecodedCache)):
        raise ArgumentError(f"cache must be 'decoded', a DecodedCache or an EncodedCache, not {cache!r}")
    contents: dict[str, Any] = {
        name: method() for name in ("fingerprint", "cache_key") if (method := optional_method(source, name)) is not None
    }
    if None in (contents.get("fingerprint"), contents.get("cache_key", "")):
        if isinstance(cache, DecodedCache) and cache.directory is not None:
            raise ArgumentError(
                f"cache: the one in {cache.directory!r} would not notice another dataset, since the source "
                f"{type(source).__name__} has no fingerprint() to identify its images"
            )
        contents = {"source": f"{type(source).__name__} object {id(source):#x}"}
    if isinstance(cache, EncodedCache):
        if getattr(source, "clip_sampler", None) is not None:
            raise ArgumentError("cache: EncodedCache keeps JPEGs, not videos")
        cache.open(len(source), contents, source=source, device=device)
    else:
        contents |= {"apply_exif": decode.apply_exif, "fancy_upsampling": decode.fancy_upsampling}
        contents |= {"decoder": codec_version(), "device": device.type}
        if getattr(source, "clip_sampler", None) is not None:
            contents["ffmpeg"] = ffmpeg_version()
        cache.open(len(source), contents, source=source, device=device)
    return cache
