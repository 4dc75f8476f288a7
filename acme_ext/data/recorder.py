"""Recording the episodes of an actor."""

from typing import Any

import dm_env
import numpy as np
import tree

from acme_ext.data.format import SHARD_BYTES, SHARD_STEPS, Episode, FolderWriter
from acme_ext.types import FIRST, LAST, EnvironmentSpec, Tree

_LEAST_STEPS, _LEAST_BYTES = 2_000, 2**22  # of a shard, if several processes write


class Recorder:
    """An actor's writer that adds whole episodes to a folder, and passes all calls on to another writer.

    Episodes that haven't ended when the recorder is closed are not recorded, nor are those that began before
    `add_first`, as after a restart.

    Args:
        to: the writer of the folder.
        inner: the actor's usual writer; None for none.
    """

    def __init__(self, to: FolderWriter, inner: Any = None):
        self._to, self._inner = to, inner
        self.keeps_state = getattr(inner, "keeps_state", False)
        self._timestep: dm_env.TimeStep | None = None
        self._rows: list[list[list[np.ndarray]]] = []  # per environment, a row of leaves for each timestep

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self._inner is None:
            raise AttributeError(name)
        return getattr(self._inner, name)

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        """Starts with a batched timestep `[B, ...]`; drops unfinished episodes."""
        self._rows = [[] for _ in range(len(timestep.step_type))]
        self._timestep = _copied(timestep)
        if self._inner is not None:
            self._inner.add_first(timestep)

    def add_anew(self, timestep: dm_env.TimeStep) -> None:
        """Lets the other writer begin anew, because the policy's state did; the episodes go on."""
        if self._inner is not None:
            self._inner.add_first(timestep)

    def add(self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = (), **kept: Any) -> None:
        """Adds the actions `[B, ...]` taken at the newest timestep, and the next timesteps."""
        assert self._timestep is not None
        before, actions = self._timestep, np.array(action)
        self._timestep = _copied(next_timestep)
        leaves = [*tree.flatten(before.observation), actions, before.reward, before.discount, before.step_type]
        ended, going = before.step_type == LAST, []
        for env, rows in enumerate(self._rows):
            begun = rows or before.step_type[env] == FIRST
            if begun and not ended[env]:  # the last row of an episode was already written
                # A view would hold the whole batch in memory; an element of a vector is a number, and no view.
                rows.append([leaf[env] if leaf.ndim == 1 else leaf[env].copy() for leaf in leaves])
                going.append(env)
        after = self._timestep
        for env in going:
            if after.step_type[env] == LAST:
                self._finish(env, after, np.zeros_like(actions[env]))
        if self._inner is not None:
            self._inner.add(action, next_timestep, extras, **kept)

    def _finish(self, env: int, last: dm_env.TimeStep, no_action: np.ndarray) -> None:
        rows = self._rows[env]
        rows.append(
            [
                *(leaf[env] for leaf in tree.flatten(last.observation)),
                no_action,
                last.reward[env],
                last.discount[env],
                last.step_type[env],
            ]
        )
        *observation, action, reward, discount, step_type = (np.stack(column) for column in zip(*rows, strict=True))
        reward[0], discount[0] = 0.0, 1.0
        self._to.add(Episode(tree.unflatten_as(last.observation, observation), action, reward, discount, step_type))
        self._rows[env] = []

    def close(self) -> None:
        """Writes the open shard, and closes both writers."""
        self._to.close()
        if self._inner is not None:
            self._inner.close()


def part_of(path: str, writers: int, spec: EnvironmentSpec, name: str) -> FolderWriter:
    """Returns the writer of one of several processes that write to the same folder.

    Args:
        path: the folder, in which `FolderWriter.begin` was called.
        writers: the number of processes. Their open shards together are at most as large as the open shard of a single
            writer, unless there are so many that shards would become too small.
        spec: the environment's specs.
        name: the name of this process.

    Raises:
        UsageError: see `FolderWriter`.
    """
    steps, nbytes = max(_LEAST_STEPS, SHARD_STEPS // writers), max(_LEAST_BYTES, SHARD_BYTES // writers)
    return FolderWriter(path, spec, {}, shard_steps=steps, shard_bytes=nbytes, part=name)


def _copied(timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    """Returns a copy of a batch, since the environment's next step overwrites its arrays."""
    copied: dm_env.TimeStep = tree.map_structure(np.array, timestep)  # type: ignore[assignment]
    return copied
