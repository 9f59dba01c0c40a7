"""Image files: paths, (path, label) pairs, a pattern, or a directory; or two folders of images and masks."""

from __future__ import annotations

import errno
import glob
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.limits import DEFAULT_MAX_BYTES
from cuaug.errors import ArgumentError, SourceError
from cuaug.remote import urls as _urls
from cuaug.sources.labels import Classes, encode_text, labels_at, to_label_sequence
from cuaug.sources.source import ReprMixin, cache_key, cached_method, fingerprint, relative_paths

__all__ = ["EXTENSIONS", "Files", "Pairs", "images_below", "is_pattern", "split_pairs"]

log = logging.getLogger("cuaug")

#: File extensions of images in a directory.
EXTENSIONS = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp", ".jp2", ".j2k"),
    *(".gif", ".avif", ".ppm", ".pgm", ".pnm"),
)

_PATHS_PER_SEARCH = 65_536

# Errors of broken links: a loop, a path through a file, a path that is too long.
_BROKEN_LINK = (errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG)

# (device, inode) of folders.
FolderIds = frozenset[tuple[int, int]]
# Names of folders that are no classes.
_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})
_TRAINING = frozenset({"train", "training"})
_IMAGE_FOLDERS = frozenset({"image", "images", "img", "imgs", "jpegimages"})
_TARGET_FOLDERS = frozenset({"mask", "masks", "label", "labels", "annotation", "annotations", "segmentationclass"})


class Files(ReprMixin):
    """Image files with one label each.

    Args:
        paths: the files. http, https, s3 and gs URLs are read through fsspec (`pip install "cuaug[remote]"`); `Remote`
            reads other protocols.
        labels: one per path, in the same order; None: each file's index, as in DALI's reader. Text that repeats is
            class names, and becomes class numbers.
        classes: names of the labels 0, 1, ...; "auto": the sorted class names, if labels are text and there are at
            most two different ones for three files; None: text stays text, such as captions.

    Attributes:
        max_bytes: limit on the size of one URL's file. `DecodeOptions(max_bytes=)` limits local files.

    Raises:
        LoaderError: no paths; a single path instead of a list; an entry that is no path; another number of labels than
            paths; or a URL with another protocol, with credentials or in a chain (::).
    """

    max_bytes = DEFAULT_MAX_BYTES
    #: File extensions that `from_directory` looks for, and the word for such files.
    extensions: tuple[str, ...] = EXTENSIONS
    kind = "images"

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        labels: Iterable[Any] | None = None,
        classes: Classes = "auto",
    ) -> None:
        if isinstance(paths, (str, bytes, set, frozenset)) or not isinstance(paths, Iterable):
            raise ArgumentError(f"paths must be a list of files, not {paths!r:.200}; open_source takes a folder")
        entries: list[Any] = list(paths)
        self.paths: list[str] = entries if set(map(type, entries)) <= {str} else _to_strings(entries)
        if not self.paths:
            raise ArgumentError("paths is empty: there is nothing to load")
        given: Sequence[Any] = range(len(self.paths)) if labels is None else to_label_sequence(labels)
        if len(given) != len(self.paths):
            raise ArgumentError(f"labels has {len(given)} entries for {len(self.paths)} paths: give one per path")
        self.labels, self.classes = encode_text(given, classes)
        self._has_urls = _any_is_url(self.paths)
        if self._has_urls:
            self._check_urls()

    @classmethod
    def from_entries(cls, entries: Sequence[Any]) -> Files:
        """Makes a source from paths or (path, label) pairs."""
        return cls(*split_pairs(entries))

    @classmethod
    def from_directory(cls, root: str | os.PathLike[str], classes: Sequence[str] | None = None) -> Files:
        """Finds every image below root/<class>/, at any depth, in sorted order.

        A directory that holds images and no folders gives these, unlabeled: a file's label is its index, as in a list
        of paths. The log names files that are left out: those beside class folders, and those beside images that are
        no images.

        Links and hidden folders are followed, as in torchvision's ImageFolder. Sample numbers may differ from
        ImageFolder's: ImageFolder lists a folder's files before its subfolders (c/a.jpg, c/b.jpg, c/a/x.jpg; here
        c/a.jpg, c/a/x.jpg, c/b.jpg) and knows fewer extensions than `EXTENSIONS`. To keep ImageFolder's numbers, load
        its pairs: `Loader(image_folder.samples)`.

        Args:
            root: the directory.
            classes: the class folders in label order, some of which may be missing or empty, as in a validation set;
                None: all folders, sorted. The log warns where a folder "train" beside `root` has other classes.

        Raises:
            LoaderError: no images; a folder cannot be listed or is not in `classes`; or a link leads to a folder that
                contains it.
        """
        root = os.fspath(root)
        if not os.path.isdir(root):
            raise SourceError(
                f"{root!r} is not a directory: give one with a folder per class or with images, a list of paths, or a "
                "pattern such as 'photos/*.jpg'"
            )
        folders, files, ancestors = _list_folder(root, frozenset())
        found = sorted(map(os.path.basename, folders))
        names = found if classes is None else list(classes)
        if unknown := sorted(set(found) - set(names)):
            raise ArgumentError(f"classes must name all class folders of {root!r}; it lacks {unknown!r:.200}")
        images = sorted(file for file in files if file.lower().endswith(cls.extensions))
        if not found and not images:
            shards = {os.path.splitext(file)[1] for file in files} & {".tar", ".tfrecord"}
            hints = [f"give its shards as {os.path.join(root, '*' + ending)!r}" for ending in sorted(shards)]
            raise SourceError(
                f"{root!r} has no folders and no {', '.join(cls.extensions)} file: it should hold one folder of "
                + "; ".join([f"{cls.kind} per class, or {cls.kind}", *hints])
            )
        if not found and classes is None:
            _log_ignored(root, "images", set(files) - set(images))
            return cls(images)
        _log_ignored(root, "class folders", files)
        if classes is None:
            _warn_of_roles(root, names)
            _warn_of_other_classes(root, names)
        paths: list[str] = []
        labels: list[int] = []
        for label, name in enumerate(names):
            folder = os.path.join(root, name)
            images = images_below(folder, ancestors, cls.extensions) if classes is None or os.path.isdir(folder) else []
            if not images and classes is None:
                raise SourceError(f"class folder {folder!r} holds no {', '.join(cls.extensions)} file")
            paths += images
            labels += [label] * len(images)
        return cls(paths, labels, names)

    @classmethod
    def from_pattern(cls, pattern: str) -> Files:
        """The files that match a shell pattern, sorted and unlabeled: a file's label is its index.

        `**` stands for any number of folders. Folders are left out.

        Raises:
            LoaderError: no file matches.
        """
        paths = sorted(path for path in glob.iglob(pattern, recursive=True) if not os.path.isdir(path))
        if not paths:
            raise SourceError(f"no file matches {pattern!r}: a relative pattern starts at {os.getcwd()!r}")
        return cls(paths)

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> tuple[str | bytes, Any]:
        """Returns (path, label); for a URL, (bytes, label).

        Raises:
            OSError: the URL cannot be fetched.
            DecodeError: the URL's file has more than `max_bytes`.
        """
        path = self.paths[index]
        return self._fetch(path) if self._has_urls and _urls.is_url(path) else path, self.labels[index]

    @property
    def samples(self) -> list[tuple[str, Any]]:
        """(path, label) pairs, as torchvision's ImageFolder names them."""
        return list(zip(self.paths, self.labels, strict=True))

    @property
    def gives_paths(self) -> bool:
        """Whether `read` only gives paths, without reading anything itself."""
        return not self._has_urls

    def paths_and_labels(self, indices: NDArray[np.int64]) -> tuple[list[str], list[Any]] | None:
        """What `read` returns for each of these samples, where `gives_paths`; None if `read` has to be called."""
        labels = labels_at(self.labels, indices) if type(self).read is Files.read else None
        return None if labels is None else (list(map(self.paths.__getitem__, indices.tolist())), labels)

    def label(self, index: int) -> Any:
        """The label alone, as `read` returns it."""
        return self.labels[index]

    def path(self, index: int) -> str:
        """The path or URL."""
        return self.paths[index]

    @cached_method
    def fingerprint(self) -> str:
        """Digest of the paths below their common folder, the labels and the class names."""
        return fingerprint("files", relative_paths(self.paths), self.labels, self.classes)

    def cache_key(self) -> str:
        """The common folder, and a digest of the modification times of up to 1,000 files."""
        return cache_key(self.paths)

    def _check_urls(self) -> None:
        _urls.check(path for path in self.paths if _urls.is_url(path))

    def _fetch(self, url: str) -> bytes:
        return _urls.fetch(url, self.max_bytes)


def is_pattern(path: str) -> bool:
    """Whether a path has wildcards, and no file of that very name exists."""
    return glob.has_magic(path) and not os.path.lexists(path)


def _log_ignored(root: str, kind: str, files: Iterable[str]) -> None:
    """Logs the files that are left out; hidden ones, such as .DS_Store, are not named."""
    names = sorted(name for name in map(os.path.basename, files) if not name.startswith("."))
    if names:
        log.warning("%r: %d file(s) beside the %s are not loaded, the first %r", root, len(names), kind, names[0])


def _warn_of_roles(root: str, classes: Sequence[str]) -> None:
    """Warns of folders that look like parts of a data set, not like classes."""
    names = {name.lower() for name in classes}
    if len(names) > 1 and names <= _SPLITS:
        inner = os.path.join(root, classes[0])
        log.warning("%r: its folders %s are loaded as classes; for one of them give %r", root, classes, inner)
    elif names & _IMAGE_FOLDERS and names & _TARGET_FOLDERS and names <= _IMAGE_FOLDERS | _TARGET_FOLDERS:
        log.warning(
            "%r: its folders %s are loaded as classes; cuaug.sources.Pairs(images, masks) loads images with masks, "
            "cuaug.sources.Yolo(folder) with boxes",
            root,
            classes,
        )


def _warn_of_other_classes(root: str, classes: Sequence[str]) -> None:
    """Warns of a folder such as val/ whose labels mean other classes than those of train/ beside it."""
    parent, own = os.path.split(os.path.abspath(root))
    if own.lower() not in _SPLITS - _TRAINING:
        return
    for name in sorted(_TRAINING):
        train = os.path.join(parent, name)
        try:
            theirs = sorted(map(os.path.basename, _list_folder(train, frozenset())[0]))
        except SourceError:  # mostly: there is none
            continue
        if theirs and theirs != list(classes):
            odd = sorted(set(theirs) ^ set(classes))
            log.warning(
                "%r and %r have different class folders (%.200s), so that one label means two classes: give "
                "cuaug.sources.Files.from_directory(%r, classes=[...]) the names of all classes",
                train,
                root,
                ", ".join(map(repr, odd)),
                root,
            )


def split_pairs(entries: Sequence[Any]) -> tuple[list[Any], list[Any] | None]:
    """Splits paths or (path, label) pairs into (paths, labels); labels is None for paths alone.

    Raises:
        LoaderError: an entry is neither, or paths and pairs are mixed.
    """
    types = set(map(type, entries))  # millions of entries have few types
    pair_types = {kind for kind in types if not issubclass(kind, (str, os.PathLike))}
    if not pair_types:
        return list(entries), None
    if pair_types != types:
        is_pair = [type(entry) in pair_types for entry in entries]
        i = is_pair.index(not is_pair[0])
        raise ArgumentError(f"files mixes paths and (path, label) pairs: entry {i} is {entries[i]!r:.200}")
    paths = list(map(itemgetter(0), entries)) if _all_have_two(pair_types, entries) else []
    if not paths or any(not issubclass(kind, (str, os.PathLike)) for kind in set(map(type, paths))):
        i = next(i for i, entry in enumerate(entries) if not _is_pair(entry))
        raise ArgumentError(f"files: entry {i} is neither a path nor a (path, label) pair: {entries[i]!r:.200}")
    return paths, list(map(itemgetter(1), entries))


def _all_have_two(types: set[type], entries: Sequence[Any]) -> bool:
    return all(issubclass(kind, Sequence) for kind in types) and set(map(len, entries)) == {2}


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[0], (str, os.PathLike))


def _to_strings(paths: Iterable[Any]) -> list[str]:
    strings = []
    for i, path in enumerate(paths):
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(text, str):
            raise ArgumentError(f"paths: entry {i} is {path!r:.200}, not a path")
        strings.append(str(text))  # NumPy's strings are of a type of their own
    return strings


def _any_is_url(paths: list[str]) -> bool:
    """Whether any path is a URL, searched in joined chunks: a line break between two paths makes no URL."""
    step = _PATHS_PER_SEARCH
    return any(_urls.is_url("\n".join(paths[i : i + step])) for i in range(0, len(paths), step))


def images_below(
    folder: str, ancestors: FolderIds = frozenset(), extensions: tuple[str, ...] = EXTENSIONS
) -> list[str]:
    """Lists the images in a folder and its subfolders, sorted by path.

    Args:
        ancestors: folders that contain `folder`.

    Raises:
        LoaderError: a folder cannot be listed, or a link leads to a folder that contains it.
    """
    images: list[str] = []
    pending = [(folder, ancestors)]  # a list: folders may be nested deeper than Python can recurse
    while pending:
        subfolders, files, around = _list_folder(*pending.pop())
        images += [file for file in files if file.lower().endswith(extensions)]
        pending += [(subfolder, around) for subfolder in subfolders]
    return sorted(images)


def _list_folder(folder: str, ancestors: FolderIds) -> tuple[list[str], list[str], FolderIds]:
    """Returns (subfolders, files, ancestors of these).

    Raises:
        LoaderError: the folder cannot be listed, or is one of its own ancestors.
    """
    try:
        status = os.stat(folder)
        with os.scandir(folder) as entries:
            kinds = [(entry.path, _is_folder(entry)) for entry in entries]
    except OSError as error:
        raise SourceError(f"cannot list {folder!r}: {error}") from error
    own_id = status.st_dev, status.st_ino
    if own_id in ancestors:
        raise SourceError(f"{folder!r} is a link to a folder that contains it: the files below it have no end")
    subfolders = [path for path, is_folder in kinds if is_folder]
    return subfolders, [path for path, is_folder in kinds if not is_folder], ancestors | {own_id}


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno not in _BROKEN_LINK:
            raise
        return False


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
