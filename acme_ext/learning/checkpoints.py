"""Checkpoints of a run: each is a folder, which is written completely or not at all, and whose contents are verified.

Orbax is not used: its releases either can't be installed with jax 0.5.3 and this project's pinned packages, or don't
verify contents.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from acme_ext.errors import RunError, UsageError
from acme_ext.types import Tree
from acme_ext.utils import files

_FORMAT = 1
_MANIFEST = "manifest.json"
_NAME = re.compile(r"[A-Za-z][\w-]*")
_FOLDER = re.compile(r"\d{12}(\.replaced)?")  # `.replaced` remains if a second save at the same steps was killed
_UNFINISHED = ".unfinished-"
_log = logging.getLogger(__name__).warning


class Restored(NamedTuple):
    """The contents of a checkpoint."""

    steps: int
    trees: dict[
        str, Tree
    ]  # with the templates' structure: NumPy arrays, typed keys, and Python numbers where the templates have them
    info: dict[str, Any]
    path: Path  # the folder, which also has the files that `extra` wrote


class _DamagedError(Exception):
    """A checkpoint differs from what was saved; the message says how."""


class CheckpointStore:
    """Saves and restores checkpoints in a folder, and keeps the latest `keep`.

    A checkpoint is a folder named after its steps. It contains `NAME.npz` for each tree, `NAME.json` for each part of
    the info, the files that `extra` wrote, and a manifest with the size and SHA-256 of every file. It is written under
    a temporary name, synced to the disk and then renamed, so a killed save never leaves a partial checkpoint. Only one
    process at a time may save.

    Args:
      directory: the folder of the checkpoints; created at the first save.
      keep: number of checkpoints to keep, without damaged ones. Older ones are deleted after the new one is complete.
      report: called with a message for each damaged checkpoint that is skipped.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int = 3,
        *,
        report: Callable[[str], None] = _log,
    ):
        if keep < 1:
            raise UsageError(f"at least 1 checkpoint must be kept, not {keep}.")
        self._directory = Path(directory)
        self._keep = keep
        self._report = report
        self._digests: dict[tuple[int, int, int], str] = {}  # digests of the files of the latest checkpoint saved here
        self._whole: dict[str, bool] = {}  # whether a checkpoint is undamaged, by folder name, if known

    def save(
        self,
        steps: int,
        trees: Mapping[str, Tree],
        info: Mapping[str, Any],
        extra: Callable[[Path], None] | None = None,
        *,
        keep_also: int | None = None,
    ) -> Path:
        """Saves a checkpoint and returns its folder; all files are synced to the disk when this returns.

        Args:
          steps: the step that orders the checkpoints. A checkpoint with the same steps is replaced. Checkpoints with
            more steps are deleted: the run was resumed from an earlier one, so they must be damaged.
          trees: nests of arrays of any backend, typed PRNG keys and Python numbers, by name.
          info: JSON values, by name.
          extra: a function that writes further files into the given folder. Hard links to files of the latest
            checkpoint are neither read nor written again.
          keep_also: the steps of a checkpoint that is kept besides the latest ones.

        Raises:
          RunError: the disk is full; older checkpoints are kept.
          ValueError: a name is given twice, or can't be a file's name here.
          TypeError: a leaf is not a number or an array of numbers.
        """
        names = [*trees, *info]
        if bad := [name for name in names if not _NAME.fullmatch(name) or name == "manifest" or names.count(name) > 1]:
            raise ValueError(
                f"each tree and part of the info needs a name of its own, of letters, digits, _ and -: {bad}"
            )
        arrays, leaves = _encode(trees)
        target = self._directory / f"{steps:012d}"
        with files.disk_errors(target), self._unfinished(target.name) as folder:
            for name, by_path in arrays.items():
                _write_npz(folder / f"{name}.npz", by_path)
            for name, value in info.items():
                (folder / f"{name}.json").write_text(files.json_text(value), encoding="utf-8")
            if extra is not None:
                extra(folder)
            self._digests = _write_manifest(folder, steps, list(info), leaves, self._digests)
            before = target.with_name(f"{target.name}.replaced")
            if before.exists() and target.exists():  # a save was killed before it could prune
                _discard(before) if self._is_whole(target) else shutil.rmtree(target)
            if target.exists():
                os.rename(target, before)
            os.rename(folder, target)
            files.fsync(self._directory)
            self._whole[target.name] = True
            self._prune(target, keep_also)
        return target

    def restore(
        self,
        templates: Mapping[str, Tree],
        *,
        optional: Sequence[str] = (),
        extra: bool = True,
        steps: int | None = None,
    ) -> Restored | None:
        """Returns the latest undamaged checkpoint, or None if there are no checkpoints.

        Args:
          templates: the trees to read, by name, with their structure, shapes and dtypes; leaves may be
            `jax.ShapeDtypeStruct`.
          optional: names of templates whose trees a checkpoint may lack; the result then lacks them too.
          extra: whether to verify all files, including those that `save`'s `extra` wrote; otherwise, only the files
            that are read here.
          steps: the steps of the wanted checkpoint; None for the latest undamaged one.

        Raises:
          UsageError: a tree doesn't fit its template; the message names the leaf.
          RunError: every checkpoint, or every one at `steps`, is damaged.
        """
        folders = self._folders(steps)
        for folder in folders:
            try:
                manifest = _checked_manifest(folder, None if extra else list(templates))
                leaves = manifest["leaves"]
                wanted = {name: tree for name, tree in templates.items() if name in leaves or name not in optional}
                trees = {name: _decode(folder, name, leaves, template) for name, template in wanted.items()}
                info = {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in manifest["info"]}
            except (_DamagedError, OSError) as error:
                self._whole[folder.name] = False
                self._report(f"the checkpoint {folder} is damaged, so the one before it is tried: {error}.")
            else:
                if extra:
                    self._whole[folder.name] = True
                return Restored(manifest["steps"], trees, info, folder)
        if folders:
            if self._folders(steps) != folders:  # a live run has replaced them meanwhile
                return self.restore(templates, optional=optional, extra=extra, steps=steps)
            raise RunError(f"every checkpoint in {self._directory} is damaged: start anew in another directory.")
        return None

    def infos(self, name: str) -> Iterator[tuple[int, Any]]:
        """Yields the steps of each checkpoint, the latest first, and a part of its info, which is not verified."""
        for folder in self._folders():
            with contextlib.suppress(OSError, ValueError):
                yield int(folder.name[:12]), json.loads((folder / f"{name}.json").read_text("utf-8"))

    def latest(self) -> int | None:
        """Returns the steps of the latest checkpoint that is not known to be damaged; None if there is none."""
        return next((int(f.name[:12]) for f in self._folders() if self._whole.get(f.name, True)), None)

    def _folders(self, steps: int | None = None) -> list[Path]:
        """Returns the checkpoints, latest first; with `steps`, only those at these steps."""
        if not self._directory.is_dir():
            return []
        found = [path for path in self._directory.iterdir() if _FOLDER.fullmatch(path.name) and path.is_dir()]
        found = [path for path in found if steps is None or int(path.name[:12]) == steps]
        return sorted(found, key=lambda path: (path.name[:12], path.name == path.name[:12]), reverse=True)

    @contextlib.contextmanager
    def _unfinished(self, name: str) -> Iterator[Path]:
        self._directory.mkdir(parents=True, exist_ok=True)
        for leftover in self._directory.glob(f"{_UNFINISHED}*"):  # left by a killed save
            shutil.rmtree(leftover)
        folder = self._directory / f"{_UNFINISHED}{name}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # already renamed if the save succeeded

    def _is_whole(self, folder: Path) -> bool:
        if folder.name not in self._whole:  # verified only once, because the files may be many gigabytes
            try:
                _checked_manifest(folder)
                self._whole[folder.name] = True
            except (_DamagedError, OSError, UsageError):
                self._whole[folder.name] = False
        return self._whole[folder.name]

    def _prune(self, newest: Path, keep_also: int | None) -> None:
        kept = 0
        for folder in self._folders():
            given_up = folder.name > newest.name or len(folder.name) > len(newest.name)
            if not given_up and kept < self._keep:
                kept += self._is_whole(folder)
            elif given_up or keep_also is None or int(folder.name) != keep_also:
                _discard(folder)


def _discard(folder: Path) -> None:
    """Deletes a checkpoint; half deleted, it would look damaged under its own name."""
    doomed = folder.with_name(f"{_UNFINISHED}{folder.name}")
    os.rename(folder, doomed)
    shutil.rmtree(doomed)


def _write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays as np.savez does; but on a full disk, np.savez leaves its archive open, causing a second error."""
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _write_manifest(
    folder: Path,
    steps: int,
    info: list[str],
    leaves: Mapping[str, Mapping[str, str]],
    known: Mapping[tuple[int, int, int], str],
) -> dict[tuple[int, int, int], str]:
    """Syncs all files of a folder to the disk, and writes a manifest with their sizes and digests.

    Files whose inode, size and time are in `known` are not read or synced again. Returns the digests of all files, with
    the same keys as `known`.
    """
    entries, digests = {}, {}
    for parent, folders, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            found = path.stat()
            which = (found.st_ino, found.st_size, found.st_mtime_ns)
            if (digest := known.get(which)) is None:
                files.fsync(path)
                digest = files.sha256(path)
            digests[which] = digest
            entries[path.relative_to(folder).as_posix()] = {"size": found.st_size, "sha256": digest}
        for name in folders:
            files.fsync(Path(parent, name))
    manifest = {"format": _FORMAT, "steps": steps, "info": info, "leaves": leaves, "files": entries}
    files.write_json(folder / _MANIFEST, {"sha256": _digest(manifest), "manifest": manifest})
    return digests


def _checked_manifest(folder: Path, trees: Sequence[str] | None = None) -> dict[str, Any]:
    """Verifies a checkpoint's files and returns its manifest.

    With `trees`, verifies only the files of these trees and of the info. Raises _DamagedError for a damaged file.
    """
    try:
        document = json.loads((folder / _MANIFEST).read_bytes())
        manifest, digest = document["manifest"], document["sha256"]
    except FileNotFoundError:
        raise _DamagedError(f"{_MANIFEST} is missing") from None
    except (ValueError, KeyError, TypeError):
        raise _DamagedError(f"{_MANIFEST} can't be read") from None
    if _digest(manifest) != digest:
        raise _DamagedError(f"{_MANIFEST} has been altered")
    if manifest["format"] != _FORMAT:
        raise _misfit(f"{folder} has format {manifest['format']}, and this version reads format {_FORMAT}")
    read = {f"{name}.npz" for name in trees or ()} | {f"{name}.json" for name in manifest["info"]}
    for name, entry in manifest["files"].items():
        if trees is not None and name not in read:
            continue
        path = folder / name
        if not path.is_file():
            raise _DamagedError(f"{name} is missing")
        if (size := path.stat().st_size) != entry["size"]:
            raise _DamagedError(f"{name} has {size} bytes instead of {entry['size']}")
        if files.sha256(path) != entry["sha256"]:
            raise _DamagedError(f"the contents of {name} have changed")
    return manifest


def _digest(manifest: Any) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _encode(trees: Mapping[str, Tree]) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, dict[str, str]]]:
    """Returns each tree's leaves by path, as arrays for .npy files, and the type of each: a dtype or `key:KIND`."""
    raw: dict[str, dict[str, Any]] = {}
    leaves: dict[str, dict[str, str]] = {}
    for name, tree in trees.items():
        flat = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}
        raw[name] = {path: jax.random.key_data(leaf) if _is_key(leaf) else leaf for path, leaf in flat.items()}
        leaves[name] = {path: f"key:{jax.random.key_impl(leaf)}" for path, leaf in flat.items() if _is_key(leaf)}
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for name, fetched in jax.device_get(raw).items():  # in one call, so that the transfers overlap
        arrays[name] = {}
        for path, leaf in fetched.items():
            array = np.asarray(leaf)
            if array.dtype.kind in "OSU":
                raise TypeError(f"{name}{path} can't be saved: it holds {type(leaf).__name__}, not numbers.")
            leaves[name].setdefault(path, array.dtype.name)
            arrays[name][path] = array if _has_npy_form(array.dtype) else array.view(f"u{array.dtype.itemsize}")
    return arrays, leaves


def _decode(folder: Path, name: str, leaves: Mapping[str, Mapping[str, str]], template: Tree) -> Tree:
    """Reads a tree that `_encode` encoded; raises UsageError, naming the leaf, if it doesn't fit the template."""
    if name not in leaves:
        raise UsageError(f"{folder} holds no tree {name!r}; it holds {', '.join(leaves)}.")
    flat, structure = jax.tree_util.tree_flatten_with_path(template)
    wanted = {jax.tree_util.keystr(path): leaf for path, leaf in flat}
    if odd := [path for path in wanted if path not in leaves[name]]:
        raise _misfit(f"{folder} doesn't fit: it has no leaf {name}{odd[0]}, which the run needs")
    if odd := [path for path in leaves[name] if path not in wanted]:
        raise _misfit(f"{folder} doesn't fit: it has a leaf {name}{odd[0]}, which the run hasn't")
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        restored = [
            _decode_leaf(f"{folder} doesn't fit: {name}{path}", file[path], leaves[name][path], leaf)
            for path, leaf in wanted.items()
        ]
    return jax.tree_util.tree_unflatten(structure, restored)


def _decode_leaf(where: str, stored: np.ndarray, kind: str, template: Any) -> Any:
    if kind.startswith("key:"):
        leaf = jax.random.wrap_key_data(jax.numpy.asarray(stored), impl=kind.removeprefix("key:"))
    else:
        # Use JAX's type of this name: if TensorFlow is loaded, NumPy's bfloat16 is TensorFlow's.
        dtype = np.dtype(getattr(jax.numpy, kind, kind))
        leaf = stored if _has_npy_form(dtype) else stored.view(dtype)
    if isinstance(template, (bool, int, float, complex)):  # includes NumPy's float64, which is a float
        if leaf.shape != () or type(leaf.item()) is not type(np.asarray(template).item()):
            raise _misfit(f"{where} is {kind}{list(leaf.shape)} there, and {type(template).__name__} here")
        return leaf.item()
    if leaf.shape != tuple(template.shape) or leaf.dtype != template.dtype:
        raise _misfit(
            f"{where} is {leaf.dtype}{list(leaf.shape)} there, and {template.dtype}{list(template.shape)} here"
        )
    return leaf


def _misfit(why: str) -> UsageError:
    return UsageError(
        f"{why}; another agent or another version saved it: resume with that one, or start anew (--fresh)."
    )


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _has_npy_form(dtype: np.dtype) -> bool:
    """Whether a .npy file preserves the dtype; bfloat16 and similar types are read back as raw bytes."""
    return np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype)) == dtype
