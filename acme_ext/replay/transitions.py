"""Replay of n-step transitions: its settings and its writer.

Reverb's cost is per item, so there a uniform replay stores a block of several transitions in an item. Batches then
consist of complete blocks. All transitions are sampled equally often, but the transitions of a block are sampled
together. With several environments, a block holds one step's transitions of different environments, which are nearly
independent. With few environments, it holds random transitions from the newest ones.
"""

import dataclasses
import functools
from typing import ClassVar

import dm_env
import numpy as np
import tree

from acme_ext.config.types import Positive, PositiveInt, Share
from acme_ext.replay import blocks, frames, nstep
from acme_ext.replay.base import Replay
from acme_ext.replay.config import TransitionSampling
from acme_ext.replay.rows import Layout, OnWait, RowWriter, Sink
from acme_ext.types import Array, OneStep, Transition, Tree


@dataclasses.dataclass(frozen=True)
class TransitionReplay(TransitionSampling, Replay):
    """A replay of n-step transitions in one table, each a flat row of bytes.

    It has these attributes in addition to `Replay`'s.

    Attributes:
        n_step: steps that a transition spans; fewer at an episode's end.
        discount: gamma of one step; it is already included in `batch.discount`.
        max_abs_reward: each reward is clipped to this absolute value before the n-step sum; None for no clipping.
        burst: approximate number of transitions that are built and sent together.
        rows_per_item: transitions in a block of a Reverb table; other tables have no blocks. It must divide
            `batch_size`, and only a uniform replay can have more than 1. None chooses the largest size that is at most
            the larger of `num_envs` and 8, and leaves at least 8 blocks in a batch; it chooses 1 if the replay is not
            uniform. If a block has more rows than there are environments, transitions are shuffled first, see
            `blocks.pool`.
        num_envs: environments of each writer.
        keeps_one_step: whether a transition also includes its first step as a one-step transition, `batch.one_step`.
        in_blocks: whether the table may store several rows in an item.
    """

    item: ClassVar[str] = "transition"

    priority: nstep.PriorityFn | None = None
    table: str = "transitions"
    discount: Share = 0.99
    max_abs_reward: Positive | None = None
    burst: PositiveInt = 32
    num_envs: int = 1
    keeps_one_step: bool = False
    in_blocks: bool = True

    def __post_init__(self):
        super().__post_init__()
        if self.rows_per_item is not None:
            blocks.check_blocks(self.rows_per_item, self.batch_size, self.order)

    @functools.cached_property
    def block(self) -> int:
        if not self.in_blocks:
            return 1
        if self.rows_per_item is not None or self.order != "uniform":
            return self.rows_per_item or 1
        return blocks.size(self.batch_size, self.num_envs, self.limit)

    @property
    def waiting(self) -> int:
        return blocks.pool(self.block, self.num_envs, self.limit)

    def for_envs(self, num_envs: int) -> "TransitionReplay":
        return dataclasses.replace(self, num_envs=num_envs)

    @property
    def _layout(self) -> Layout:
        fields = nstep.transition_spec(self.spec, self.extras, self.keeps_one_step)
        if self.keeps_one_step:
            return Layout(fields)
        return frames.layout(fields, self.spec.observations, ("observation", "next_observation"), self.n_step)

    def writer(
        self, sink: Sink, num_envs: int, *, max_pending: int | None = None, on_wait: OnWait = lambda: None
    ) -> "NStepWriter":
        """Returns a writer for `num_envs` environments that step in parallel; see `NStepWriter`."""
        return NStepWriter(self, sink, num_envs, max_pending=max_pending, on_wait=on_wait)

    def decode(self, rows: Array) -> Transition:
        """Unpacks rows of bytes `[B, nbytes]` into transitions; a pure function, for use inside a compiled step."""
        return self._layout.unpack(rows)


class NStepWriter(RowWriter):
    """Writes the n-step transitions of B environments that step in parallel.

    An n-step return starts at every step and ends after n steps, or at the episode's end:
    `R = sum_{k<m} (prod_{j<k} gamma d_j) r_k`, `discount = prod_{j<m} gamma d_j`, `m <= n`. So an episode of T steps
    gives T transitions. A termination has d = 0, and a truncation has d > 0; no other mark is needed.

    Steps are stored in NumPy ring buffers. Rows are built for many steps at once, and sent together.

    Args:
        replay: the settings.
        sink: receives the rows.
        num_envs: B.
        max_pending, on_wait: see `RowWriter`.
    """

    def __init__(
        self,
        replay: "TransitionReplay",
        sink: Sink,
        num_envs: int,
        *,
        max_pending: int | None = None,
        on_wait: OnWait = lambda: None,
    ):
        super().__init__(replay._layout, sink, max_pending, on_wait)
        self._replay, self._priority = replay, replay.priority or (nstep.largest_error if replay.prioritized else None)
        self._keep_extras = bool(tree.flatten(replay.extras))
        self._starts = max(1, replay.burst // num_envs)  # steps whose transitions are sent together
        # Ticks 0..ticks of a timeline: each has a timestep, and all but the newest have the action taken at it.
        self._ticks = self._starts + replay.n_step
        self._rings = nstep.StepBuffer(self._ticks + 1)
        self._now = -1

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        """Starts a timeline with a batched timestep `[B, ...]`, after writing the rest of an earlier timeline."""
        self.flush()
        self._now = 0
        self._rings.record(0, timestep)

    def add(self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = ()) -> None:
        """Adds the actions `[B, ...]` taken at the newest timestep, the policy's extras, and the next timestep.

        Where the newest timestep was LAST, the action is ignored, and `next_timestep` is the FIRST of the next episode.
        """
        self._rings.act(self._now, action, extras)
        self._now += 1
        self._rings.record(self._now, next_timestep)
        if self._now == self._ticks:
            self._write(self._starts, self._ticks - 1)
            self._now = self._rings.move_to_front(self._starts, self._now)

    def flush(self) -> None:
        """Sends all steps so far, and ends the timeline; the last steps give transitions of fewer than n steps."""
        if self._now > 0:
            # Initial priorities need the extras at both ends. The newest timestep has none, so use the ones before.
            self._rings.repeat_action(self._now)
            self._write(self._now, self._now)
        self._now = -1

    def _write(self, starts: int, limit: int) -> None:
        """Writes the transitions that start at ticks [0, starts) and end at tick `limit` at the latest."""
        rings, replay = self._rings.nest, self._replay
        steps = nstep.n_steps(rings, np.arange(starts), replay.n_step, replay.discount, replay.max_abs_reward, limit)
        time, env = np.nonzero(steps.length)
        if not len(time):
            return
        begin, steps = (time, env), nstep.NSteps(*(each[time, env] for each in steps))
        end = time + steps.length, env
        made = nstep.transitions(rings, steps, begin, end, keep_extras=self._keep_extras)
        if replay.keeps_one_step:
            second = time + 1, env
            reward, clip = rings.reward[second], replay.max_abs_reward
            reward = reward if clip is None else np.clip(reward, -clip, clip)
            discount = np.float32(replay.discount) * rings.discount[second]
            made = made._replace(one_step=OneStep(reward, discount, nstep.at(rings.observation, second)))
        errors = None if self._priority is None else nstep.first_errors(self._priority, rings, steps, begin, end)
        self._send(tree.flatten(made), errors)
