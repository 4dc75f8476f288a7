"""Recorded data in place of a replay that actors fill: the same rows, from memory."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import dm_env
import numpy as np
import tree

from acme_ext.errors import UsageError
from acme_ext.replay.base import Replay
from acme_ext.replay.dataset import RawBatch
from acme_ext.replay.sinks import OnWait
from acme_ext.types import Tree


class MemorySink:
    """A sink that keeps the rows."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> None:
        self.rows.append(np.array(rows))

    def flush(self, pending: int, on_wait: OnWait) -> None:
        pass

    def has_sent(self, pending: int) -> bool:
        return True

    def close(self) -> None:
        pass


def rows_of(replay: Replay, episodes: Iterable[Any], initial_state: Tree = ()) -> np.ndarray:
    """Returns the rows, uint8 `[N, nbytes]`, that a replay's own writer makes of episodes.

    n-step returns, discounts, clipped rewards and sequences are so what they are in Reverb.

    Args:
        replay: sampled at random, without priorities or extras.
        episodes: see `data.format.Episode`.
        initial_state: `[1, ...]` the policy's, stored with every sequence, since recorded data has none.

    Raises:
        UsageError: the replay can't be filled so, or there is nothing in the data.
    """
    if replay.fifo or replay.prioritized:
        what = "learns from its own newest data" if replay.fifo else "has a prioritized replay"
        raise UsageError(f"this agent {what}: it can't learn from fixed data.")
    if tree.flatten(replay.extras):
        raise UsageError(
            "this agent learns from what its policy gave with each action, which recorded data hasn't got."
        )
    if getattr(replay, "rows_per_item", None):
        replay = dataclasses.replace(replay, rows_per_item=1)
    sink = MemorySink()
    writer = replay.writer(sink, 1)
    kept = {"state": initial_state} if getattr(writer, "keeps_state", False) else {}
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


class FixedBatches(Iterator[RawBatch]):
    """Batches of rows drawn at random with replacement, each row equally likely; the same ones for the same seed.

    Args:
        rows: uint8 `[N, nbytes]`.
        size: rows in a batch.
        seed: of the draws.
    """

    def __init__(self, rows: np.ndarray, size: int, seed: int):
        self._rows, self._size = rows, size
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._probability = np.full(size, 1 / len(rows), np.float32)

    def __next__(self) -> RawBatch:
        chosen = self._rng.integers(0, len(self._rows), self._size)
        return RawBatch(self._rows[chosen], chosen.astype(np.uint64), self._probability)

    def save(self) -> dict[str, Any]:
        """Returns the generator's state, plain JSON."""
        state = self._rng.bit_generator.state
        return {**state, "state": {name: str(value) for name, value in state["state"].items()}}

    def restore(self, saved: dict[str, Any]) -> None:
        """Takes up what `save` returned: the next batch is the one that came next then."""
        self._rng.bit_generator.state = {
            **saved,
            "state": {name: int(value) for name, value in saved["state"].items()},
        }
