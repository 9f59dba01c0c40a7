"""`DecodeOptions`: how a loader turns encoded images into pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cuaug._runtime.arguments import flag, limit, one_of
from cuaug._runtime.limits import DEFAULT_MAX_BYTES, DEFAULT_MAX_PIXELS
from cuaug._runtime.migration_hints import suggests_arguments
from cuaug.errors import ArgumentError


@suggests_arguments
@dataclass(frozen=True, kw_only=True)
class DecodeOptions:
    """How a `Loader` decodes images, passed as `Loader(..., decode=...)`.

    Args:
        mode: "RGB", three 8-bit channels; "L", one: gray, or Pillow's luma of color; "RGBA", four: opaque images have
            alpha 255; "unchanged", 1 to 16 channels of uint8, uint16 or float32, as the file stores them (PNG, TIFF,
            NPY; other formats where Pillow keeps them). Some TIFFs need the extra `tiff`.
        lossy: decode files that hold more than the mode keeps. True takes 8 bits of 16, scales other ranges, such as a
            PGM's maxval 100, and takes the first page or frame of several; False refuses such files as a DecodeError.
            Alpha that "RGB" and "L" drop is logged once.
        apply_exif: rotate and flip images as their EXIF orientation says. PIL images of a Dataset stay as they are.
        fancy_upsampling: interpolate a JPEG's chroma as libjpeg does. False decodes faster, with other colors.
        max_pixels: largest height x width of an image. A larger image is refused before memory is allocated; images
            that transforms make are checked too.
        max_bytes: largest number of encoded bytes of a sample. The size is checked before reading where it is known.
        index_bytes: largest size of the JPEG index, which lets crops decode only the blocks they need. It is a file in
            the images' folder, or else in CUAUG_CACHE_DIR, which ranks and later runs share. 0: no index. None: 1/64 of
            the machine's memory, and 1/10 of the disk's free space.
        decoder: "auto": our kernels decode sequential JPEGs, with the CPU's bits, and nvImageCodec the other ones.
            "nvimgcodec" decodes all. `stats().decoded_by` tells which did. GPU only.
        video_decoder: "ffmpeg" decodes clips on the CPU. "nvdec" decodes them on the GPU's video engine, and with
            FFmpeg where that is not possible; it conceals damage (docs/video.md). Not run on a GPU yet. GPU only.

    Raises:
        LoaderError: an argument has a wrong type or value.
    """

    mode: Literal["RGB", "L", "RGBA", "unchanged"] = "RGB"
    lossy: bool = False
    apply_exif: bool = True
    fancy_upsampling: bool = True
    max_pixels: int = DEFAULT_MAX_PIXELS
    max_bytes: int = DEFAULT_MAX_BYTES
    index_bytes: int | None = None
    decoder: Literal["auto", "nvimgcodec"] = "auto"
    video_decoder: Literal["ffmpeg", "nvdec"] = "ffmpeg"

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "mode": one_of("mode", self.mode, ("RGB", "L", "RGBA", "unchanged")),
            "lossy": flag("lossy", self.lossy),
            "apply_exif": flag("apply_exif", self.apply_exif),
            "fancy_upsampling": flag("fancy_upsampling", self.fancy_upsampling),
            "max_pixels": limit("max_pixels", self.max_pixels, 1),
            "max_bytes": limit("max_bytes", self.max_bytes, 1),
            "index_bytes": None if self.index_bytes is None else limit("index_bytes", self.index_bytes, 0),
            "decoder": one_of("decoder", self.decoder, ("auto", "nvimgcodec")),
            "video_decoder": one_of("video_decoder", self.video_decoder, ("ffmpeg", "nvdec")),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)  # NumPy integers become Python ints


_DEFAULT = DecodeOptions()


def open_options(decode: Any) -> DecodeOptions:
    """The options, or for None the default ones."""
    if decode is None:
        return _DEFAULT
    if not isinstance(decode, DecodeOptions):
        raise ArgumentError(f"decode must be a cuaug.DecodeOptions or None, not {decode!r:.100}")
    return decode
