"""Images and masks in two folders, paired by name."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cuaug.errors import SourceError
from cuaug.sources._fingerprint import cache_key, cached_method, fingerprint
from cuaug.sources._repr import ReprMixin
from cuaug.sources.files import EXTENSIONS, images_below

__all__ = ["Pairs"]

_NAMES_SHOWN = 3


class Pairs(ReprMixin):
    """Images with one mask file each, from two folders, sorted by name.

    An image and its mask have the same path below their folders, without extension: images/a/1.jpg and masks/a/1.png.
    A label is {"mask": path}. A `Loader` reads the mask as class numbers and moves it with its image; its
    `DecodeOptions` limit masks, too.

    Args:
        images: folder of the images.
        masks: folder of the masks.
        image_suffix: end of the images' names, before the extension, that is not part of the common name. Files
            without it are left out.
        mask_suffix: the same of the masks' names, such as "_mask".

    Raises:
        LoaderError: a folder cannot be listed or holds no such file; a file has no partner, or two of one name.
    """

    def __init__(
        self,
        images: str | os.PathLike[str],
        masks: str | os.PathLike[str],
        *,
        image_suffix: str = "",
        mask_suffix: str = "",
    ) -> None:
        self.images, self.masks = os.fspath(images), os.fspath(masks)
        self.image_suffix, self.mask_suffix = image_suffix, mask_suffix
        image_of = _files_by_name("images", self.images, image_suffix)
        mask_of = _files_by_name("masks", self.masks, mask_suffix)
        unmatched = _unmatched("images", image_of, mask_of) + _unmatched("masks", mask_of, image_of)
        if unmatched:
            raise SourceError(
                f"images {self.images!r} and masks {self.masks!r} must hold files of the same names: "
                f"{'; '.join(unmatched)}. Remove them, or give image_suffix=, mask_suffix= where names end differently"
            )
        self._names = sorted(image_of)
        self._image_files = [image_of[name] for name in self._names]
        self._mask_files = [mask_of[name] for name in self._names]

    def __len__(self) -> int:
        return len(self._names)

    def read(self, index: int) -> tuple[str, dict[str, str]]:
        """Returns (path, {"mask": path})."""
        return self._image_files[index], self.label(index)

    def label(self, index: int) -> dict[str, str]:
        """The label alone, as `read` returns it."""
        return {"mask": self._mask_files[index]}

    def path(self, index: int) -> str:
        """The image's path."""
        return self._image_files[index]

    @cached_method
    def fingerprint(self) -> str:
        """Digest of the paths below the two folders."""
        sides = ((self.images, self._image_files), (self.masks, self._mask_files))
        return fingerprint("pairs", *([os.path.relpath(file, folder) for file in files] for folder, files in sides))

    def cache_key(self) -> str:
        """The common folder, and a digest of the modification times of up to 1,000 files."""
        return cache_key([*self._image_files, *self._mask_files])


def _files_by_name(argument: str, folder: str, suffix: str) -> dict[str, str]:
    """The image files below a folder by their common names, in sorted order."""
    files: dict[str, str] = {}
    for path in images_below(folder):
        name, _ = os.path.splitext(os.path.relpath(path, folder))
        if not name.endswith(suffix):
            continue
        name = name.removesuffix(suffix)
        if name in files:
            raise SourceError(f"{argument}: {files[name]!r} and {path!r} have the same name: which one is the partner?")
        files[name] = path
    if not files:
        ending = f" whose name ends with {suffix!r}" if suffix else ""
        raise SourceError(f"{argument}: {folder!r} holds no {', '.join(EXTENSIONS)} file{ending}")
    return files


def _unmatched(argument: str, files: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """A description of the files without a partner; empty if all have one."""
    alone = [files[name] for name in files if name not in others]
    if not alone:
        return []
    more = f" and {len(alone) - _NAMES_SHOWN} more" if len(alone) > _NAMES_SHOWN else ""
    return [f"{len(alone)} of the {argument} have no partner, {', '.join(map(repr, alone[:_NAMES_SHOWN]))}{more}"]
