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
from cuaug.remote import ObjectStore
from cuaug.remote.urls import check as check_urls
from cuaug.remote.urls import is_url
from cuaug.sources.file_bytes import FilePaths, home_hint
from cuaug.sources.labels import Classes, encode_text, labels_at, to_label_sequence
from cuaug.sources.source import ReprMixin, cache_key, cached_method, fingerprint, relative_paths

log = logging.getLogger("cuaug")

#: File extensions of images in a directory.
EXTENSIONS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".webp", ".tif", ".tiff", ".bmp", ".dib"),
    *(".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx", ".gif", ".avif", ".avifs"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".pfm"),
)

_PATHS_PER_SEARCH = 65_536

# Folders beside each other that may be parts of one data set; more are data sets of their own.
_MOST_PARTS = 10

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
        paths: the files; also http, https, s3, gs and az URLs (`pip install ".[remote]"`), for which `Remote` takes
            options.
        labels: one per path, in the same order; None: each file's index, as in DALI's reader. Text that repeats is
            class names, and becomes class numbers.
        classes: names of the labels 0, 1, ...; "auto": the sorted class names, if labels are text and there are at
            most two different ones for three files; None: text stays text, such as captions.

    Attributes:
        max_bytes: limit on the size of one URL's file. `DecodeOptions(max_bytes=)` limits local files.

    Raises:
        LoaderError: no paths; a single path instead of a list; an entry that is no path; another number of labels than
            paths; or a URL with another protocol or with credentials.
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
        self._store: ObjectStore | None = None
        if _any_is_url(self.paths):
            check_urls(filter(is_url, self.paths))
            self._store = ObjectStore()

    @classmethod
    def from_directory(cls, root: str | os.PathLike[str], classes: Sequence[str] | None = None) -> Files:
        """Finds every image below root/<class>/, at any depth, in sorted order.

        A directory that holds images and no folders gives these, unlabeled: a file's label is its index, as in a list
        of paths. The log counts files that are left out: those beside class folders, and those that are no images.

        Links and hidden folders are followed, as in torchvision's ImageFolder. Sample numbers may differ from
        ImageFolder's: ImageFolder lists a folder's files before its subfolders (c/a.jpg, c/b.jpg, c/a/x.jpg; here
        c/a.jpg, c/a/x.jpg, c/b.jpg) and knows fewer extensions than `EXTENSIONS`. To keep ImageFolder's numbers, load
        its pairs: `Loader(image_folder.samples)`.

        Args:
            root: the directory.
            classes: the class folders in label order, some of which may be missing or empty, as in a validation set;
                None: all folders, sorted. The log warns where a folder beside `root` has more classes.

        Raises:
            LoaderError: no images; a folder cannot be listed or is not in `classes`; a link leads to a folder that
                contains it; or without `classes`, the folders are parts of a data set, such as train/ and val/.
        """
        root = os.fspath(root)
        if not os.path.isdir(root):
            raise SourceError(
                f"{root!r} is not a directory: give one with a folder per class or with images, a list of paths, or a "
                f"pattern such as 'photos/*.jpg'{home_hint(root)}"
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
            log_ignored(root, f"beside the {cls.kind}", set(files) - set(images))
            return cls(images)
        log_ignored(root, "beside the class folders", files)
        if classes is None:
            _refuse_roles(root, names)
            _warn_of_other_classes(root, names)
        paths: list[str] = []
        labels: list[int] = []
        ignored: list[str] = []
        for label, name in enumerate(names):
            folder = os.path.join(root, name)
            exists = classes is None or os.path.isdir(folder)
            images, others = _files_below(folder, ancestors, cls.extensions) if exists else ([], [])
            if not images and classes is None:
                raise SourceError(f"class folder {folder!r} holds no {', '.join(cls.extensions)} file")
            paths += images
            labels += [label] * len(images)
            ignored += others
        log_ignored(root, f"beside the {cls.kind} of its class folders", ignored)
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
            raise SourceError(
                f"no file matches {pattern!r}: a relative pattern starts at {os.getcwd()!r}{home_hint(pattern)}"
            )
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
        data = path if self._store is None or not is_url(path) else self._store.fetch(path, self.max_bytes)
        return data, self.labels[index]

    @property
    def samples(self) -> list[tuple[str, Any]]:
        """(path, label) pairs, as torchvision's ImageFolder names them."""
        return list(zip(self.paths, self.labels, strict=True))

    def locate(self, indices: NDArray[np.int64]) -> FilePaths | None:
        """The paths and labels of these samples; None if there are URLs, or a subclass reads otherwise."""
        if self._store is not None or type(self).read is not Files.read:
            return None
        labels = labels_at(self.labels, indices)
        return None if labels is None else FilePaths([self.paths[i] for i in indices.tolist()], labels)

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


def is_pattern(path: str) -> bool:
    """Whether a path has wildcards, and no file of that very name exists."""
    return glob.has_magic(path) and not os.path.lexists(path)


def log_ignored(root: str, place: str, files: Iterable[str]) -> None:
    """Warns once of files below `root` that are left out; hidden ones, such as .DS_Store, do not count."""
    ignored = [file for file in files if not os.path.basename(file).startswith(".")]
    if ignored:
        first = min(ignored).removeprefix(os.path.join(root, ""))
        log.warning("%r: %d file(s) %s are not loaded, the first %r", root, len(ignored), place, first)


def log_without_labels(described: str, unlabeled: Sequence[str], count: int, kind: str) -> None:
    """Warns once of images whose label file is missing, which may be background or a fault in names."""
    if unlabeled:
        log.warning(
            "%s: %d of %d images have no %s, so they have no objects, the first %r",
            *(described, len(unlabeled), count, kind, unlabeled[0]),
        )


def _refuse_roles(root: str, classes: Sequence[str]) -> None:
    """Refuses folders that are parts of a data set, not classes."""
    names = {name.lower() for name in classes}
    if len(names) > 1 and names <= _SPLITS:
        remedy = f"give one of them, such as {os.path.join(root, classes[0])!r}"
    elif names & _IMAGE_FOLDERS and names & _TARGET_FOLDERS and names <= _IMAGE_FOLDERS | _TARGET_FOLDERS:
        remedy = "cuaug.sources.Pairs(images, masks) loads images with masks, cuaug.sources.Yolo(folder) with boxes"
    else:
        return
    raise SourceError(
        f"{root!r}: its folders {classes} are parts of a data set, not classes: {remedy}; if they are classes, "
        f"cuaug.sources.Files.from_directory({root!r}, classes={classes})"
    )


def _warn_of_other_classes(root: str, classes: Sequence[str]) -> None:
    """Warns of a folder whose labels mean other classes than those of a folder beside it.

    Beside val/ that is train/ with any other classes; else, among a few folders, one that has all classes and more.
    """
    parent, own = os.path.split(os.path.abspath(root))
    try:
        beside = _list_folder(parent, frozenset())[0]
    except SourceError:
        return
    for other in sorted(set(beside) - {os.path.join(parent, own)}):
        is_train = os.path.basename(other).lower() in _TRAINING and own.lower() in _SPLITS - _TRAINING
        is_like = len(classes) >= 2 and len(beside) <= _MOST_PARTS and os.path.isdir(os.path.join(other, classes[0]))
        if not is_train and not is_like:
            continue
        try:
            theirs = sorted(map(os.path.basename, _list_folder(other, frozenset())[0]))
        except SourceError:
            continue
        if theirs and (theirs != list(classes) if is_train else set(theirs) > set(classes)):
            odd = sorted(set(theirs) ^ set(classes))
            log.warning(
                "%r and %r have different class folders (%.200s), so that one label means two classes: where these "
                "are parts of one data set, use cuaug.sources.Files.from_directory(%r, classes=train.classes) with "
                "the classes of the other",
                *(other, root, ", ".join(map(repr, odd)), root),
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
        hint = "; paths and their labels are list(zip(paths, labels))" if len(entries) == 2 else ""
        raise ArgumentError(f"files: entry {i} is neither a path nor a (path, label) pair: {entries[i]!r:.200}{hint}")
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
    return any(is_url("\n".join(paths[i : i + step])) for i in range(0, len(paths), step))


def images_below(folder: str, extensions: tuple[str, ...] = EXTENSIONS, beside: tuple[str, ...] = ()) -> list[str]:
    """Lists the images in a folder and its subfolders, sorted by path; the log counts other files.

    Args:
        beside: file extensions that may lie beside the images, such as those of label files.

    Raises:
        LoaderError: a folder cannot be listed, or a link leads to a folder that contains it.
    """
    images, others = _files_below(folder, frozenset(), extensions)
    kind = "images" if extensions == EXTENSIONS else f"{', '.join(extensions)} files"
    log_ignored(folder, f"beside the {kind}", (file for file in others if not file.lower().endswith(beside)))
    return images


def _files_below(folder: str, ancestors: FolderIds, extensions: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """(files with these extensions, sorted; other files) in a folder and its subfolders.

    Args:
        ancestors: folders that contain `folder`.
    """
    images: list[str] = []
    others: list[str] = []
    pending = [(folder, ancestors)]  # a list: folders may be nested deeper than Python can recurse
    while pending:
        subfolders, files, around = _list_folder(*pending.pop())
        for file in files:
            (images if file.lower().endswith(extensions) else others).append(file)
        pending += [(subfolder, around) for subfolder in subfolders]
    return sorted(images), others


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
    `DecodeOptions` limit masks, too. `labels["mask"]` of a batch is (N, H, W) uint8 for files of 8 bits, whereas
    `cross_entropy` takes int64: `labels["mask"].long()`.

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
