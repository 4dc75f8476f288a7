"""Converts recorded data from and to the formats of Minari (data sets) and D4RL (HDF5 files).

In these formats, a step has an action and the reward for it, and actions are in the environment's units.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tree
from dm_env import specs

from acme_ext import envs
from acme_ext.commands.common import counted
from acme_ext.data.format import MANIFEST, Episode, Folder, FolderWriter
from acme_ext.envs.canonical import ActionScale, bounds_of, canonical_actions, own_actions
from acme_ext.errors import UsageError
from acme_ext.launch.runs.identity import restore_environment
from acme_ext.types import FIRST, LAST, MID, Tree
from acme_ext.utils import files, install

_MINARI, _D4RL = "minari:", "d4rl:"
_JPEG_SIZE = 32  # from this size on, Minari compresses images with losses
_NAMES = ("observations", "actions", "rewards", "terminals")  # every D4RL file has these; most also have `timeouts`


def is_foreign(name: str) -> bool:
    """Whether a name refers to data in another format: `minari:NAME` or `d4rl:FILE`."""
    return name.startswith((_MINARI, _D4RL))


def convert(
    source: str,
    target: str,
    environment: str | None = None,
    environment_options: Mapping[str, Any] | None = None,
    *,
    skip_damaged: bool = False,
) -> str:
    """Converts data to another format, and returns a description of the result.

    Args:
        source: a folder of recorded data, `minari:NAME` or `d4rl:FILE`.
        target: the same kinds; either `source` or `target` must be a folder.
        environment: the environment of Minari or D4RL data, if the data doesn't name it.
        environment_options: options of the environment of Minari or D4RL data; they replace those that it names.
        skip_damaged: skips damaged shards of a folder instead of raising an error.

    Raises:
        UsageError: the source doesn't exist, the target can't be written, the data doesn't match the environment, or
            the format doesn't support it.
    """
    if is_foreign(source) == is_foreign(target):
        raise UsageError("one of the data and --to must be a folder, and the other minari:NAME or d4rl:FILE.")
    if is_foreign(source):
        if skip_damaged:
            raise UsageError("--skip-damaged is for the shards of a folder.")
        return _take_in(source, target, environment, dict(environment_options or {}))
    if environment is not None or environment_options:
        raise UsageError("--environment and --env-set are for data of minari: or d4rl:; a folder names its own.")
    folder = Folder(source, skip_damaged=skip_damaged)
    if skip_damaged:
        folder.leave_out_damaged()
    folder.check_steps()
    scale = _scale(folder.manifest["environment"], folder.manifest["environment_options"])
    if target.startswith(_D4RL):
        return _write_d4rl(folder, scale, Path(target.removeprefix(_D4RL)))
    return _write_minari(folder, scale, target.removeprefix(_MINARI))


class _Units:
    """An environment's specs, and conversions of actions to and from its units."""

    def __init__(self, environment: Any):
        self.spec = envs.make_spec(environment)
        self.actions = own_actions(environment)
        bounds = bounds_of(self.actions)
        self._scale = None if bounds is None else ActionScale(*bounds)

    def out(self, actions: np.ndarray) -> np.ndarray:
        """Returns actions `[T, ...]` in the environment's units."""
        return actions if self._scale is None else self._scale(actions)

    def back(self, actions: np.ndarray) -> np.ndarray:
        """Converts actions in the environment's units to the agent's: continuous ones become `[T, A]` in [-1, 1]."""
        if self._scale is None:
            return actions.astype(self.spec.actions.dtype).reshape(-1, *self.spec.actions.shape)
        scaled = (actions.reshape(-1, *self._scale.middle.shape) - self._scale.middle) / self._scale.half
        return np.clip(scaled, -1, 1).astype(np.float32).reshape(len(actions), -1)


def _scale(described: Any, options: Mapping[str, Any]) -> _Units:
    """Returns the units of an environment, given as in a manifest."""
    environment = envs.make(restore_environment(described), num_envs=1, seed=0, **options)
    with contextlib.closing(canonical_actions(environment)) as made:
        return _Units(made)


def _needed(module: str, why: str) -> Any:
    """Imports a module of the extra `minari`; raises UsageError if it is not installed."""
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"{why} {module}, not installed here: {install.command('minari')}")
    return importlib.import_module(module)


def _ends(episode: Episode) -> tuple[np.ndarray, np.ndarray]:
    """Returns whether each of an episode's T steps was its termination, and whether it was its truncation."""
    ended = np.arange(1, episode.steps + 1) == episode.steps
    return ended & (episode.discount[1:] == 0), ended & (episode.discount[1:] != 0)


# Minari ------------------------------------------------------------------------------------------------------------


def _write_minari(folder: Folder, units: _Units, name: str) -> str:
    minari = _needed("minari", "data of Minari needs")
    for leaf in tree.flatten(folder.spec.observations):
        if leaf.dtype == np.uint8 and len(leaf.shape) > 1 and min(leaf.shape[:2]) >= _JPEG_SIZE:
            raise UsageError("Minari would store these images as JPEG, which changes them: use the folder itself.")
    buffers = []
    for episode in folder.episodes():
        terminal, truncated = _ends(episode)
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                observations=episode.observation,
                actions=units.out(episode.action[:-1]),
                rewards=episode.reward[1:].tolist(),
                terminations=terminal.tolist(),
                truncations=truncated.tolist(),
                infos={},
            )
        )
    manifest = folder.manifest
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about a missing author and a missing evaluation environment
            made = minari.create_dataset_from_buffers(
                name,
                buffers,
                observation_space=_space(folder.spec.observations),
                action_space=_space(units.actions),
                algorithm_name=manifest["agent"],
                description=f"{manifest['environment']}, recorded by acme_ext",
            )
    except ValueError as error:
        raise UsageError(f"minari:{name} can't be written: {error}") from error
    about = {key: manifest[key] for key in ("environment", "environment_options")}
    made.storage.update_metadata({"acme_ext": json.dumps(about)})
    return f"minari:{name}: {counted(made.total_steps, 'step')} in {counted(made.total_episodes, 'episode')}"


def _space(spec: Tree) -> Any:
    spaces = importlib.import_module("gymnasium.spaces")
    if isinstance(spec, Mapping):
        return spaces.Dict({name: _space(value) for name, value in spec.items()})
    if isinstance(spec, specs.DiscreteArray):
        return spaces.Discrete(int(spec.num_values))
    if isinstance(spec, specs.BoundedArray):
        low, high = (np.broadcast_to(bound, spec.shape).astype(spec.dtype) for bound in (spec.minimum, spec.maximum))
        return spaces.Box(low, high, spec.shape, spec.dtype.type)
    if isinstance(spec, specs.Array):
        if spec.dtype.kind in "iu":
            limits = np.iinfo(spec.dtype)
            return spaces.Box(limits.min, limits.max, spec.shape, spec.dtype.type)
        return spaces.Box(-np.inf, np.inf, spec.shape, spec.dtype.type)
    return spaces.Tuple([_space(value) for value in spec])


def _read_minari(name: str, units: _Units, dataset: Any) -> Iterator[Episode]:
    for episode in dataset.iterate_episodes():
        discount = 0.0 if episode.terminations[-1] else 1.0
        yield _episode(units, episode.observations, np.asarray(episode.actions), episode.rewards, discount, name)


def _opened(name: str) -> Any:
    minari = _needed("minari", "data of Minari needs")
    try:
        return minari.load_dataset(name)
    except (FileNotFoundError, ValueError, KeyError) as error:
        known = ", ".join(sorted(minari.list_local_datasets())[:12])
        raise UsageError(f"there is no data set minari:{name} here; there are: {known or 'none'}.") from error


def _environment_of(dataset: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the environment that a Minari data set names, as in a manifest, and its options."""
    written = dataset.storage.metadata.get("acme_ext")
    if written is not None:
        about = json.loads(written)
        return about["environment"], about["environment_options"]
    return (f"gym:{dataset.spec.env_spec.id}", {}) if dataset.spec.env_spec is not None else (None, {})


# D4RL --------------------------------------------------------------------------------------------------------------


def _write_d4rl(folder: Folder, units: _Units, path: Path) -> str:
    h5py = _needed("h5py", "files of D4RL need")
    if not isinstance(folder.spec.observations, specs.Array):
        raise UsageError("a D4RL file has a single array of observations, but these observations have several fields.")
    if path.suffix not in (".hdf5", ".h5"):
        raise UsageError(f"{path} is not a name for a D4RL file: it must end in .hdf5.")
    columns: dict[str, list[np.ndarray]] = {name: [] for name in (*_NAMES, "timeouts", "next_observations")}
    for episode in folder.episodes():
        terminal, truncated = _ends(episode)
        columns["observations"].append(episode.observation[:-1])
        columns["next_observations"].append(episode.observation[1:])
        columns["actions"].append(units.out(episode.action[:-1]))
        columns["rewards"].append(episode.reward[1:])
        columns["terminals"].append(terminal)
        columns["timeouts"].append(truncated)
    files.make_writable_folder(path.parent)
    with files.replacing(path) as temporary, h5py.File(temporary, "w") as file:
        for name, parts in columns.items():
            file.create_dataset(name, data=np.concatenate(parts), compression="gzip")
    return f"d4rl:{path}: {counted(folder.steps, 'step')} in {counted(len(folder.returns), 'episode')}"


def _read_d4rl(path: Path, units: _Units) -> Iterator[Episode]:
    if not path.is_file():
        raise UsageError(f"there is no file {path}.")
    try:
        with _needed("h5py", "files of D4RL need").File(path, "r") as file:
            columns = {name: file[name][()] for name in (*_NAMES, "timeouts", "next_observations") if name in file}
    except OSError as error:
        raise UsageError(f"{path} can't be read as HDF5: {error}.") from error
    if missing := [name for name in _NAMES if name not in columns]:
        raise UsageError(f"{path} is not a D4RL file: it has no {' and no '.join(missing)}.")
    terminals = columns["terminals"].astype(bool)
    timeouts = columns.get("timeouts", np.zeros(len(terminals), bool)).astype(bool)
    ends = np.flatnonzero(terminals | timeouts) + 1
    if not len(ends) or ends[-1] < len(terminals):
        ends = np.append(ends, len(terminals))  # the last episode may be unfinished
    after = columns.get("next_observations")
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        observations, steps = columns["observations"][begin:end], int(end - begin)
        if after is not None:
            observations = np.concatenate([observations, after[end - 1 : end]])
        elif terminals[end - 1]:
            observations = np.concatenate([observations, observations[-1:]])  # never used, because the discount is 0
        else:
            steps -= 1  # the last step has no next observation
        if steps:
            part = slice(begin, begin + steps)
            discount = 0.0 if terminals[begin + steps - 1] else 1.0
            rewards = columns["rewards"][part]
            yield _episode(units, observations, columns["actions"][part], rewards, discount, str(path))


# Both --------------------------------------------------------------------------------------------------------------


def _take_in(source: str, target: str, environment: str | None, options: dict[str, Any]) -> str:
    dataset = _opened(source.removeprefix(_MINARI)) if source.startswith(_MINARI) else None
    if environment is None and dataset is not None:
        environment, own = _environment_of(dataset)
        options = {**own, **options}
    if environment is None:
        raise UsageError(f"{source} doesn't name its environment: give it with --environment.")
    if (files.expanded(target) / MANIFEST).is_file():
        raise UsageError(f"{target} holds recorded data already: choose another folder.")
    units = _scale(environment, options)
    about = {"environment": environment, "environment_options": options, "agent": f"taken from {source}"}
    about |= {"config": {}, "seed": None, "policy": "unknown"}
    path = Path(source.removeprefix(_D4RL))
    episodes = _read_d4rl(path, units) if dataset is None else _read_minari(source, units, dataset)
    folder = FolderWriter(target, units.spec, about).path  # it makes the folder, if there is none, and checks it
    temporary = folder / f".taken.{os.getpid()}.tmp"
    count = 0
    try:
        writer = FolderWriter(temporary, units.spec, about)
        for episode in episodes:
            writer.add(episode)
            count += 1
        writer.close()
        with files.disk_errors(folder):
            # The manifest comes last, so that a part of the data is never taken for all of it.
            for file in sorted(temporary.iterdir(), key=lambda file: file.name == MANIFEST):
                os.replace(file, folder / file.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return f"{target}: {counted(writer.steps, 'step')} in {counted(count, 'episode')}"


def _episode(
    units: _Units, observations: Any, actions: np.ndarray, rewards: Any, last_discount: float, source: str
) -> Episode:
    """Returns an episode of T steps, from observations `[T + 1, ...]`, actions and rewards `[T, ...]`."""
    steps = len(rewards)
    fields = units.spec.observations
    try:
        observation = tree.map_structure_up_to(fields, lambda s, x: np.asarray(x, s.dtype), fields, observations)
        for leaf, spec in zip(tree.flatten_up_to(fields, observation), tree.flatten(fields), strict=True):
            if leaf.shape != (steps + 1, *spec.shape):
                raise ValueError(f"{list(leaf.shape[1:])} there, {list(spec.shape)} here")
        acted, wanted = units.back(actions), units.spec.actions
        if acted.shape != (steps, *wanted.shape):
            raise ValueError(f"actions of the shape {list(np.shape(actions))} for {steps} steps")
        if isinstance(wanted, specs.DiscreteArray) and not 0 <= acted.min() <= acted.max() < wanted.num_values:
            raise ValueError(f"actions from {acted.min()} to {acted.max()} there, of {wanted.num_values} here")
        if np.shape(rewards) != (steps,):
            raise ValueError(f"rewards of the shape {list(np.shape(rewards))} for {steps} steps")
    except (TypeError, ValueError) as error:
        raise UsageError(f"the data of {source} doesn't match the environment's specs: {error}.") from error
    step_type = np.full(steps + 1, MID, np.uint8)
    step_type[0], step_type[-1] = FIRST, LAST
    discount = np.ones(steps + 1, np.float32)
    discount[-1] = last_discount
    reward = np.concatenate([[0.0], np.asarray(rewards, np.float32)]).astype(np.float32)
    return Episode(observation, np.concatenate([acted, np.zeros_like(acted[:1])]), reward, discount, step_type)
