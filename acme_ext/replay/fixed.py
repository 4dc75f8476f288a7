"""Replay of recorded data: the same rows as in a replay that actors fill, from memory."""

import dataclasses
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import dm_env
import numpy as np
import tree

from acme_ext.errors import UsageError
from acme_ext.replay import blocks
from acme_ext.replay.base import Replay
from acme_ext.replay.rows import DirectSink
from acme_ext.replay.sum_tree import SumTree
from acme_ext.replay.table import RawBatch
from acme_ext.types import Tree


class MemorySink(DirectSink):
    """A sink that stores the rows in memory."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []
        super().__init__(lambda rows, errors: self.rows.append(np.array(rows)))


def check_recordable(replay: Replay) -> None:
    """Raises UsageError if a replay's items can't be made from recorded episodes."""
    if replay.fifo:
        raise UsageError("this agent learns from its own newest data: it can't learn from fixed data.")
    if tree.flatten(replay.extras):
        raise UsageError(
            "this agent learns from values that its policy computed with each action; recorded data doesn't have them."
        )


def rows_of(replay: Replay, episodes: Iterable[Any], initial_state: Tree = ()) -> np.ndarray:
    """Converts episodes to rows, uint8 `[N, nbytes]`, with the replay's own writer.

    So n-step returns, discounts, clipped rewards and sequences are the same as in Reverb.

    Args:
        replay: a replay with random sampling and without extras.
        episodes: see `data.format.Episode`.
        initial_state: `[1, ...]` the policy's initial recurrent state. It is stored with every sequence, because
            recorded data has no states.

    Raises:
        UsageError: this replay can't be filled from recorded data, or the data has no steps.
    """
    check_recordable(replay)
    # Initial priorities are not needed.
    replay = blocks.singly(dataclasses.replace(replay, order="uniform", priority=None))
    sink = MemorySink()
    writer = replay.writer(sink, 1)
    kept = {"state": initial_state} if getattr(writer, "keeps_state", False) else {}
    if kept and not tree.flatten(initial_state):
        raise UsageError("this agent has a recurrent network: the rows of its replay need initial_state.")
    for episode in episodes:
        steps = [
            dm_env.TimeStep(
                episode.step_type[t : t + 1],
                episode.reward[t : t + 1],
                episode.discount[t : t + 1],
                tree.map_structure(lambda x, t=t: x[t : t + 1], episode.observation),
            )
            for t in range(len(episode.reward))
        ]
        writer.add_first(steps[0])
        for t, timestep in enumerate(steps[1:]):
            writer.add(episode.action[t : t + 1], timestep, (), **kept)
    writer.flush()
    if not sink.rows:
        raise UsageError("there are no steps in the data.")
    return np.concatenate(sink.rows)


class FixedRows:
    """A fixed set of rows, sampled uniformly or in proportion to (|TD error| + offset)**exponent.

    The error of a row without a TD error is 1. `update` and `draw` may be called from different threads.

    Args:
        rows: uint8 `[N, nbytes]`.
        exponent: exponent of the priorities; None to sample uniformly.
        offset: added to every error.
    """

    def __init__(self, rows: np.ndarray, *, exponent: float | None = None, offset: float = 0.0):
        self.rows = rows
        self._exponent, self._offset = exponent, offset
        self._lock = threading.Lock()
        self._errors = np.ones(len(rows), np.float32)
        self._weights = SumTree(len(rows))
        self._weigh(np.arange(len(rows)))

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Samples `count` rows with replacement; returns their indices, and N times the probability of each."""
        size = len(self.rows)
        if self._exponent is None:
            return rng.integers(0, size, count), np.ones(count, np.float32)
        with self._lock:
            place = self._weights.draw(rng, count)
            share = self._weights[place] / self._weights.total
        return place, (size * share).astype(np.float32)

    def update(self, index: np.ndarray, errors: np.ndarray) -> None:
        """Sets the |TD errors| `[M]` of rows `[M]`; if a row occurs twice, the later error counts."""
        with self._lock:
            self._errors[index] = errors
            self._weigh(index)

    def save(self) -> list[float] | None:
        """Returns the errors of all rows as plain JSON; None without priorities."""
        with self._lock:
            return None if self._exponent is None else self._errors.tolist()

    def restore(self, saved: list[float] | None) -> None:
        """Restores what `save` returned."""
        if saved is not None:
            if len(saved) != len(self.rows):
                raise UsageError(
                    f"the recorded data has {len(self.rows):,} items, and had {len(saved):,} when the run was saved."
                )
            self.update(np.arange(len(self.rows)), np.array(saved, np.float32))

    def _weigh(self, index: np.ndarray) -> None:
        if self._exponent is None:
            return
        self._weights.set(index, (self._errors[index] + self._offset) ** self._exponent)


class FixedBatches(Iterator[RawBatch]):
    """Batches of rows, sampled uniformly with replacement; they depend only on the rows and the seed.

    Args:
        rows: uint8 `[N, nbytes]`.
        size: rows in a batch.
        seed: random seed.
    """

    def __init__(self, rows: np.ndarray, size: int, seed: int):
        self._rows, self._size = rows, size
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._probability = np.full(size, 1 / len(rows), np.float32)

    def __next__(self) -> RawBatch:
        chosen = self._rng.integers(0, len(self._rows), self._size)
        return RawBatch(self._rows[chosen], chosen.astype(np.uint64), self._probability)

    def save(self) -> dict[str, Any]:
        """Returns the random generator's state as plain JSON."""
        return save_generator(self._rng)

    def restore(self, saved: dict[str, Any]) -> None:
        """Restores what `save` returned; the next batch is the one that followed the call of `save`."""
        restore_generator(self._rng, saved)


def save_generator(rng: np.random.Generator) -> dict[str, Any]:
    """Returns the state of a PCG64 generator as plain JSON."""
    state: Any = rng.bit_generator.state
    return {**state, "state": {name: str(value) for name, value in state["state"].items()}}


def restore_generator(rng: np.random.Generator, saved: dict[str, Any]) -> None:
    """Restores what `save_generator` returned."""
    rng.bit_generator.state = {**saved, "state": {name: int(value) for name, value in saved["state"].items()}}
