"""A folder of recorded episodes: npz shards and a manifest.

A shard holds whole episodes, one after the other: T + 1 rows for an episode of T steps. As in dm_env, a row is a
timestep and the action taken at it. Its reward and discount are those that came *with* the observation; in the first
row of an episode they are 0 and 1. The action of the last row is zeros. Rewards are not summed, discounted or clipped:
readers of the data do that. A truncation is a LAST row with a discount above 0, a termination a LAST row with 0.

| array | shape | |
|---|---|---|
| `observation`, or `observation/FIELD` of each field of a nest | `[N, ...]` | |
| `action` | `[N, ...]` | continuous ones in [-1, 1], see `envs.canonical_actions` |
| `reward`, `discount` | `[N]` float32 | as the environment gave them |
| `step_type` | `[N]` uint8 | 0 FIRST, 1 MID, 2 LAST |

`manifest.json` has the specs, the agent and the environment, and the SHA-256, steps and returns of each shard. The
processes of a program each list their shards in their own file, `NAME.part.json`, because they may be on several hosts;
a reader combines all of them. A file is written under another name, synced to the disk and then renamed. Reading never
unpickles anything.
"""

import contextlib
import fcntl
import hashlib
import io
import os
import socket
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tree
from dm_env import specs as dm_specs

from acme_ext import interfaces
from acme_ext.envs.canonical import bounds_of
from acme_ext.envs.specs import DISCOUNT, REWARD
from acme_ext.errors import UsageError
from acme_ext.types import LAST, EnvironmentSpec, Tree
from acme_ext.utils import files

FORMAT = 1
MANIFEST = "manifest.json"
SHARD_STEPS = 50_000
"""Steps of a shard, if a single process writes."""
SHARD_BYTES = 64 * 2**20
"""Bytes of a shard before compression, if a single process writes."""
_PART = ".part.json"  # suffix of a part of the manifest


class Episode(NamedTuple):
    """One episode of T steps; fields as in a shard."""

    observation: Tree  # [T + 1, ...]
    action: np.ndarray  # [T + 1, ...]
    reward: np.ndarray  # [T + 1]
    discount: np.ndarray  # [T + 1]
    step_type: np.ndarray  # [T + 1]

    @property
    def steps(self) -> int:
        """T."""
        return len(self.reward) - 1

    @property
    def score(self) -> float:
        """The sum of rewards."""
        return float(self.reward[1:].sum(dtype=np.float64))


class Folder:
    """A folder of recorded episodes, opened for reading.

    Args:
        path: the folder.
        skip_damaged: leaves out shards that are damaged or missing. Otherwise, reading them raises UsageError.

    Raises:
        UsageError: it is not a folder of recorded episodes.
    """

    def __init__(self, path: str | os.PathLike[str], *, skip_damaged: bool = False):
        self.path, self._skip = files.expanded(path), skip_damaged
        if str(path).startswith(("minari:", "d4rl:")):
            raise UsageError(f"{path} is not recorded data yet: `acme-ext data {path} --to DIR` makes a folder of it.")
        if not str(path):
            raise UsageError("the folder of the recorded data is missing: write data:FOLDER.")
        if not (self.path / MANIFEST).is_file():
            raise UsageError(f"{path} is not recorded data: it has no {MANIFEST}.")
        self.manifest: dict[str, Any] = files.read_json(self.path / MANIFEST)
        if not isinstance(self.manifest, dict) or self.manifest.get("format") != FORMAT:
            raise UsageError(f"{path} is not recorded data of format {FORMAT}.")
        self.spec = spec_from_json(self.manifest["spec"])
        parts = [files.read_json(part)["shards"] for part in sorted(self.path.glob(f"*{_PART}"))]
        self._shards = [*self.manifest["shards"], *(shard for part in parts for shard in part)]
        self.damaged: list[str] = []
        """The reasons why shards were left out, one sentence each."""

    @property
    def shards(self) -> list[dict[str, Any]]:
        """The entries of the shards in the manifest and its parts, as of opening the folder."""
        return self._shards

    @property
    def steps(self) -> int:
        """Environment steps in all shards."""
        return sum(shard["steps"] for shard in self.shards)

    @property
    def returns(self) -> np.ndarray:
        """The return of each episode, in order."""
        return np.array([value for shard in self.shards for value in shard["returns"]])

    @property
    def digest(self) -> str:
        """An identifier of this data: a digest of the digests of the shards."""
        return hashlib.sha256("".join(shard["sha256"] for shard in self.shards).encode()).hexdigest()

    def episodes(self, best: float = 1.0) -> Iterator[Episode]:
        """Yields the episodes, in order; each shard is checked against its digest before it is read.

        Args:
            best: yields only this share of the episodes in good shards, those with the largest returns.

        Raises:
            UsageError: a shard is damaged; with `skip_damaged`, all shards are damaged.
        """
        if not 0 < best <= 1:
            raise UsageError(f"best is {best}: it is a share of the episodes, in (0, 1].")
        good = self._good()
        returns = np.array([value for shard in good for value in shard["returns"]])
        count = max(1, round(best * len(returns)))
        chosen = np.zeros(len(returns), bool)
        chosen[np.argsort(-returns, kind="stable")[:count]] = True
        index = 0
        for shard in good:
            for episode in self._read(shard):
                if chosen[index]:
                    yield episode
                index += 1

    def check_spec(self, spec: EnvironmentSpec) -> None:
        """Raises UsageError if observations or actions don't match an environment's specs."""
        there, here = self.manifest["spec"], spec_to_json(spec)
        for part in ("observations", "actions"):
            if there[part] != here[part]:
                raise UsageError(
                    f"the {part} of {self.path} don't match the environment's: {there[part]} there, {here[part]} here."
                )

    def leave_out_damaged(self) -> None:
        """Leaves damaged shards out of `shards`, `steps` and `returns` too, and reports them in `damaged`.

        Raises:
            UsageError: all shards are damaged.
        """
        self._shards = self._good()

    def check_shards(self) -> None:
        """Raises UsageError if a shard is damaged and `skip_damaged` is false, or if there is no whole episode."""
        for shard in self.shards:
            self._is_good(shard)
        self.damaged = []
        self.check_steps()

    def check_steps(self) -> None:
        """Raises UsageError if there is no whole episode."""
        if not self.steps:
            raise UsageError(f"{self.path} has no whole episode yet.")

    def _good(self) -> list[dict[str, Any]]:
        good = [shard for shard in self._shards if self._is_good(shard)]
        if self._shards and not good:
            raise UsageError(f"all shards of {self.path} are damaged.")
        return good

    def _is_good(self, shard: Mapping[str, Any]) -> bool:
        path = self.path / shard["file"]
        wrong = None
        if not path.is_file():
            wrong = "is gone"
        elif files.sha256(path) != shard["sha256"]:
            wrong = "isn't what was written: its SHA-256 differs"
        if wrong is None:
            return True
        said = f"the shard {path} {wrong}."
        if not self._skip:
            others = " The others can be used with --skip-damaged." if len(self._shards) > 1 else ""
            raise UsageError(f"{said}{others}")
        self.damaged.append(said)
        return False

    def _read(self, shard: Mapping[str, Any]) -> Iterator[Episode]:
        try:
            with np.load(self.path / shard["file"], allow_pickle=False) as arrays:
                columns = {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise UsageError(f"the shard {self.path / shard['file']} can't be read: {error}.") from error
        leaves = [columns[name] for name in field_names(self.spec.observations)]
        ends = np.flatnonzero(columns["step_type"] == LAST) + 1
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            part = slice(begin, end)
            observation = tree.unflatten_as(self.spec.observations, [leaf[part] for leaf in leaves])
            yield Episode(observation, *(columns[n][part] for n in ("action", "reward", "discount", "step_type")))


class FolderWriter:
    """Writes whole episodes to a folder, new or existing with the same specs.

    Args:
        path: the folder.
        spec: the environment's specs, as the agent saw them.
        about: plain JSON for the manifest: the agent and the environment.
        shard_steps: a shard is written once it has this many steps, or `shard_bytes`.
        shard_bytes: see `shard_steps`.
        part: the prefix of the names of this writer's shards and part of the manifest, for the processes of a program;
            None for the others, which add to the manifest itself, one at a time.

    Raises:
        UsageError: the folder holds other files, or data with other specs; or it is empty and this is one of several
            writers: another writer must call `begin` first, on storage that this process sees.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        spec: EnvironmentSpec,
        about: Mapping[str, Any],
        *,
        shard_steps: int = SHARD_STEPS,
        shard_bytes: int = SHARD_BYTES,
        part: str | None = None,
    ):
        self.path, self._bounds = files.expanded(path), bounds_of(spec.actions)
        self._shard_steps, self._shard_bytes = shard_steps, shard_bytes
        self._names = field_names(spec.observations)
        described = spec_to_json(spec)
        self._manifest = {"format": FORMAT, "spec": described, **about, "shards": []}
        if (self.path / MANIFEST).is_file():
            self._reread()
        elif part is not None:
            raise UsageError(
                f"the folder {self.path.absolute()} on {socket.gethostname()} is not the one that the program records "
                "to: it has to be on storage that all hosts of the program share."
            )
        else:
            if self.path.is_dir() and files.entries(self.path):
                raise UsageError(f"{path} is neither empty nor recorded data: choose another folder.")
            files.make_writable_folder(self.path)
        self._listed, self._prefix = self.path / MANIFEST, ""
        if part is not None:
            # A unique name: not used by another process, by another run, or by a host that was presumed lost.
            name = f"{part}-{uuid.uuid4().hex[:12]}"
            self._listed, self._prefix, self._manifest = self.path / f"{name}{_PART}", f"{name}-", {"shards": []}
        self._open: list[Episode] = []
        self._open_steps = self._open_bytes = 0
        self.steps = 0
        """Steps of all added episodes, including those not yet on the disk."""

    def begin(self) -> None:
        """Writes the manifest, if there is none yet, so that other writers can add their parts."""
        if not self._listed.is_file():
            files.write_json(self._listed, self._manifest)

    def add(self, episode: Episode) -> None:
        """Adds an episode without copying its arrays, except for continuous actions: they are clipped to their bounds,
        as the environment clipped them. The action of the last row stays unchanged.
        """
        if self._bounds is not None:
            taken = np.clip(episode.action[:-1], *self._bounds)
            episode = episode._replace(action=np.concatenate([taken, episode.action[-1:]]))
        self._open.append(episode)
        self.steps += episode.steps
        self._open_steps += episode.steps
        self._open_bytes += sum(x.nbytes for x in tree.flatten(episode))
        if self._open_steps >= self._shard_steps or self._open_bytes >= self._shard_bytes:
            self.flush()

    def flush(self) -> None:
        """Writes the open shard, if there is one, and syncs it to the disk."""
        if not self._open:
            return
        columns: dict[str, np.ndarray] = {}
        observations = [tree.flatten(episode.observation) for episode in self._open]
        for i, name in enumerate(self._names):
            columns[name] = np.concatenate([leaves[i] for leaves in observations])
        for name in ("action", "reward", "discount", "step_type"):
            columns[name] = np.concatenate([getattr(episode, name) for episode in self._open])
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **columns)
        with self._alone():
            self.begin()  # a shard alone would be taken for another program's file
            path = self.path / f"{self._prefix}{len(self._manifest['shards']):06d}.npz"
            with files.replacing(path) as temporary:
                temporary.write_bytes(buffer.getvalue())
            shard = {
                "file": path.name,
                "sha256": files.sha256(path),
                "steps": self._open_steps,
                "episodes": len(self._open),
                "returns": [e.score for e in self._open],
            }
            manifest = {**self._manifest, "shards": [*self._manifest["shards"], shard]}
            files.write_json(self._listed, manifest)
            self._manifest = manifest  # only now, so that after an error another flush doesn't list the episodes twice
        self._open = []
        self._open_steps = self._open_bytes = 0

    close = flush

    def _reread(self) -> None:
        """Takes over the manifest that is in the folder; raises UsageError if it has other specs."""
        there = Folder(self.path).manifest
        if there["spec"] != self._manifest["spec"]:
            raise UsageError(f"{self.path} holds data with other specs than this environment's: choose another folder.")
        self._manifest = there

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Locks the manifest, and reads what others have added to it; a part has no other writer."""
        if self._prefix:
            yield
            return
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # some network disks have no locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if self._listed.is_file():
                self._reread()
            yield
        finally:
            os.close(descriptor)


def field_names(observations: Tree) -> list[str]:
    """Returns the array names of an observation's fields, in the order of `tree.flatten`."""
    return ["/".join(["observation", *map(str, path)]) for path, _ in tree.flatten_with_path(observations)]


def spec_to_json(spec: EnvironmentSpec) -> dict[str, Any]:
    """Returns specs as plain JSON."""
    return {"observations": _nest_to_json(spec.observations), "actions": _leaf_to_json(spec.actions)}


def spec_from_json(described: Mapping[str, Any]) -> interfaces.EnvironmentSpec:
    """Returns the specs that `spec_to_json` described."""
    observations, actions = _nest_from_json(described["observations"]), _leaf_from_json(described["actions"])
    return interfaces.EnvironmentSpec(observations, actions, REWARD, DISCOUNT)


def _nest_to_json(nest: Tree) -> Any:
    if isinstance(nest, Mapping):
        return {"fields": {name: _nest_to_json(value) for name, value in nest.items()}}
    if isinstance(nest, dm_specs.Array):
        return _leaf_to_json(nest)
    return {"parts": [_nest_to_json(value) for value in nest]}


def _nest_from_json(described: Mapping[str, Any]) -> Tree:
    if "fields" in described:
        return {name: _nest_from_json(value) for name, value in described["fields"].items()}
    if "parts" in described:
        return tuple(_nest_from_json(value) for value in described["parts"])
    return _leaf_from_json(described)


def _leaf_to_json(spec: dm_specs.Array) -> dict[str, Any]:
    described: dict[str, Any] = {"shape": list(spec.shape), "dtype": np.dtype(spec.dtype).name}
    if isinstance(spec, dm_specs.DiscreteArray):
        return {**described, "num_values": int(spec.num_values)}
    if isinstance(spec, dm_specs.BoundedArray):
        # As text, since JSON has no infinities.
        return {**described, "minimum": _texts(spec.minimum), "maximum": _texts(spec.maximum)}
    return described


def _leaf_from_json(described: Mapping[str, Any]) -> dm_specs.Array:
    shape, dtype = tuple(described["shape"]), np.dtype(described["dtype"])
    if "num_values" in described:
        return dm_specs.DiscreteArray(described["num_values"], dtype.type)
    if "minimum" in described:
        low, high = (_numbers(described[end], dtype) for end in ("minimum", "maximum"))
        return dm_specs.BoundedArray(shape, dtype, low, high)
    return dm_specs.Array(shape, dtype)


def _texts(bound: Any) -> Any:
    bound = np.asarray(bound)
    return repr(bound.item()) if not bound.ndim else [_texts(x) for x in bound]


def _numbers(texts: Any, dtype: np.dtype) -> np.ndarray:
    return np.array(_parsed(texts), dtype)


def _parsed(texts: Any) -> Any:
    if isinstance(texts, list):
        return [_parsed(text) for text in texts]
    return texts == "True" if texts in ("True", "False") else float(texts)
