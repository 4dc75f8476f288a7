"""Replay in the device's memory, as pure functions, for compiled runs.

It takes the settings of a `TransitionReplay` or a `SequenceReplay`, and has the same items, n-step returns, discounts,
priorities and rate limit; `tests/replay/test_device.py` compares them with that replay's writer. There are no blocks:
every item is sampled separately.
"""

import abc
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp

from acme_ext.errors import UsageError
from acme_ext.replay import nstep, unrolls
from acme_ext.replay.base import Replay
from acme_ext.replay.nstep import Rings
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.replay.unrolls import Unfinished
from acme_ext.types import Array, Sequence, Tree, stored_extras
from acme_ext.utils.trees import merge_axes, select

_GROUP = 256  # priorities per group; sampling chooses a group first
_AT_ONCE = 2**20  # maximum bytes of batches that are sampled at once


class Step(NamedTuple):
    """A step of N environments."""

    timestep: dm_env.TimeStep  # [N, ...] the timestep before the step
    action: Array  # [N, ...] the action taken at it; ignored where the timestep is LAST
    extras: Tree  # [N, ...] the policy's extras
    state: Tree = ()  # [N, ...] the policy's recurrent state before it saw the timestep


class DeviceReplayState(NamedTuple):
    """The contents of a replay on the device."""

    items: Any  # [max_size, ...]
    weight: Array  # [groups, 256] p**alpha, 0 where there is no item; [0] for a uniform replay
    inserted: Array  # [] int32 items inserted in total
    ticks: Array  # [] int32 timesteps added in total
    credit: Array  # [] float32 samples that the rate limit allows now
    pending: Any  # steps that are not in an item yet: Rings or Unfinished


class NewItems(NamedTuple):
    """The items that a step of all environments completes: at most one for each environment."""

    items: Any  # [N, ...]
    valid: Array  # [N] bool: whether there is an item
    errors: Callable[[], Array]  # `-> [N]`: the errors for their initial priorities


class Sampled(NamedTuple):
    """A sampled batch."""

    items: Any  # in the learner's form: Transition [B, ...] or Sequence [T, B, ...]
    index: Array  # type: ignore  # [B] int32 places in the replay
    probability: Array  # [B] float32 the probability with which each item was sampled


class DeviceReplay(abc.ABC):
    """A replay as pure functions of a `DeviceReplayState`.

    Args:
        replay: the settings; uniform or prioritized.
        num_envs: N, the number of environments that step in parallel.

    Raises:
        UsageError: a setting is not supported on the device.
    """

    def __init__(self, replay: Replay, num_envs: int):
        if replay.max_size < num_envs:
            raise UsageError(f"max_size is {replay.max_size}: it must be at least num_envs, which is {num_envs}.")
        if replay.max_size >= 2**31:
            raise UsageError(f"max_size is {replay.max_size}: a replay on the device holds less than 2**31 items.")
        self._settings, self._num_envs = replay, num_envs
        self._limit = replay.limit

    @abc.abstractmethod
    def _begin(self, step: Step) -> Any:
        """Returns the pending steps before the first timestep."""

    @abc.abstractmethod
    def _make(self, pending: Any, now: Array, step: Step, active: Array | bool) -> tuple[Any, NewItems]:
        """Returns the pending steps after timestep number `now`, and the items that it completes.

        If `active` is false, the pending steps stay unchanged.
        """

    def _batch(self, items: Any) -> Any:
        """Returns items `[B, ...]` in the form that the learner takes."""
        return items

    def init(self, step: Step) -> DeviceReplayState:
        """Returns an empty replay for steps like this one; only its shapes and dtypes are used."""
        pending = self._begin(step)

        def example(pending: Any, now: Array, step: Step) -> Any:
            return self._make(pending, now, step, True)[1].items

        items = jax.eval_shape(example, pending, jnp.int32(0), step)
        groups = -(-self._settings.max_size // _GROUP)
        return DeviceReplayState(
            items=jax.tree.map(lambda x: jnp.zeros((self._settings.max_size, *x.shape[1:]), x.dtype), items),
            weight=jnp.zeros((groups, _GROUP) if self._settings.prioritized else (0,), jnp.float32),
            inserted=jnp.int32(0),
            ticks=jnp.int32(0),
            credit=jnp.float32(0.0),
            pending=pending,
        )

    def add(self, state: DeviceReplayState, step: Step, active: Array | bool) -> DeviceReplayState:
        """Adds a step of all environments, and inserts the items that it completes.

        Args:
            state: the replay.
            step: the step.
            active: `[]` whether to add the step; if not, the replay stays unchanged.
        """
        size = self._settings.max_size
        pending, new = self._make(state.pending, state.ticks, step, active)
        valid = new.valid & active
        number = jnp.cumsum(valid, dtype=jnp.int32)
        index = select(valid, (state.inserted + number - 1) % size, size)
        weight = state.weight
        if self._settings.prioritized:
            weight = self._weighed(weight, index, new.errors())
        count = number[-1]
        return DeviceReplayState(
            items=jax.tree.map(lambda table, x: table.at[index].set(x, mode="drop"), state.items, new.items),
            weight=weight,
            inserted=state.inserted + count,
            ticks=state.ticks + jnp.asarray(active, jnp.int32),
            credit=self._credit(state, count, active),
            pending=pending,
        )

    def due(self, state: DeviceReplayState) -> Array:
        """Returns whether the rate limit allows a batch, `[]` bool."""
        return state.credit >= self._settings.batch_size

    def at_once(self, state: DeviceReplayState) -> int:
        """Returns how many batches may be sampled before learning from the first of them.

        This is the number of batches that one step of all environments allows, limited by their size in bytes. It is 1
        if learning changes which items are sampled next (prioritized replay), or if there is no ratio in the limit.
        """
        if self._settings.prioritized or self._limit is None or self._limit.samples_per_insert is None:
            return 1
        batch = self._settings.batch_size
        size = batch * sum(table.nbytes for table in jax.tree.leaves(state.items)) // self._settings.max_size
        return max(1, min(math.ceil(self._num_envs * self._limit.samples_per_insert / batch), _AT_ONCE // size))

    def draw(self, state: DeviceReplayState, key: Array) -> Sampled:
        """Samples a batch with replacement."""
        size, batch = jnp.minimum(state.inserted, self._settings.max_size), self._settings.batch_size
        if self._settings.prioritized:
            index, probability = self._by_weight(state.weight, key)
        else:
            index = jax.random.randint(key, (batch,), 0, size)
            probability = jnp.full(batch, 1.0, jnp.float32) / size
        return Sampled(self._batch(jax.tree.map(lambda table: rows_of(table, index), state.items)), index, probability)

    def counted(self, state: DeviceReplayState) -> DeviceReplayState:
        """Returns the replay after its rate limit has counted one more batch."""
        return state._replace(credit=state.credit - self._settings.batch_size)

    def reprioritized(self, state: DeviceReplayState, index: Array, errors: Array | None) -> DeviceReplayState:
        """Returns the replay with new priorities from |TD errors| `[B]` at places `[B]`; unchanged if it is uniform."""
        if not self._settings.prioritized or errors is None:
            return state
        return state._replace(weight=self._weighed(state.weight, index, errors))

    def _weighed(self, weight: Array, index: Array, errors: Array) -> Array:
        value = (errors + self._settings.priority_offset) ** self._settings.priority_exponent
        index = select(index == self._settings.max_size, weight.size, index)
        return jnp.asarray(weight).at[index // _GROUP, index % _GROUP].set(value.astype(jnp.float32), mode="drop")

    def _by_weight(self, weight: Array, key: Array) -> tuple[Array, Array]:
        """Samples places `[B]` in proportion to their weights, and returns them with their probabilities.

        It samples a group first, and then a member of the group. This avoids a sum over all weights for each sample.
        """
        of_group, of_member = jax.random.uniform(key, (2, self._settings.batch_size))
        sums = jnp.sum(weight, axis=1)
        groups = jnp.cumsum(sums)
        total = groups[-1]
        group = jnp.minimum(jnp.searchsorted(groups, of_group * total, side="right"), len(sums) - 1)
        # XLA doesn't add in order, so rounding could select a group or a member without a weight: take the one before.
        group = jax.lax.cummax(select(sums > 0, jnp.arange(len(sums)), 0))[group]
        each, number = rows_of(weight, group), jnp.arange(_GROUP)  # [B, 256], [256]
        members = jnp.cumsum(each, axis=1)
        place = jnp.sum(members <= (of_member * members[:, -1])[:, None], axis=1)
        place = jnp.max(select((each > 0) & (number <= place[:, None]), number, 0), axis=1)
        return group * _GROUP + place, weight[group, place] / total

    def _credit(self, state: DeviceReplayState, count: Array, active: Array | bool) -> Array:
        """Returns the number of samples that the rate limit allows now, after `count` more inserts.

        This is `RateLimit.samples_allowed` minus the samples taken, up to rounding, as it is computed incrementally.
        """
        limit, batch = self._limit, self._settings.batch_size
        after = state.inserted + count
        ready = after >= (limit.min_size if limit else 1)
        if limit is None or limit.samples_per_insert is None:  # one batch per step
            return select(active & ready, jnp.float32(batch), state.credit)
        ratio = limit.samples_per_insert
        first = (after - limit.min_size) * ratio + math.floor(limit.error_buffer)
        more = select(state.inserted >= limit.min_size, state.credit + ratio * count, first)
        return select(ready, more, 0.0).astype(jnp.float32)


class DeviceTransitions(DeviceReplay):
    """A replay of n-step transitions, built in the same way as by `nstep.NStepWriter`."""

    def __init__(self, replay: TransitionReplay, num_envs: int):
        super().__init__(replay, num_envs)
        if replay.rows_per_item not in (None, 1):
            raise UsageError(
                f"rows_per_item is {replay.rows_per_item}: a replay on the device draws every transition by itself; "
                "leave it out."
            )
        if replay.keeps_one_step:
            raise UsageError(
                "a replay on the device can't store single steps beside n-step transitions, which this agent needs."
            )
        self._replay, self._span = replay, replay.n_step + 1

    def _begin(self, step: Step) -> Rings:
        return _rings(step, self._span)

    def _make(self, pending: Rings, now: Array, step: Step, active: Array | bool) -> tuple[Rings, NewItems]:
        """Completes the transitions that started n steps ago."""
        replay = self._replay
        pending, start = _recorded(pending, now, step, active), now - replay.n_step
        steps = nstep.n_steps(pending, start, replay.n_step, replay.discount, replay.max_abs_reward)
        begin, end = (start % self._span,), ((start + steps.length) % self._span, jnp.arange(self._num_envs))
        items = nstep.transitions(pending, steps, begin, end, keep_extras=bool(jax.tree.leaves(replay.extras)))
        priority = replay.priority or nstep.largest_error
        errors = functools.partial(nstep.first_errors, priority, pending, steps, begin, end)
        return pending, NewItems(items, (steps.length > 0) & (start >= 0), errors)


class DeviceSequences(DeviceReplay):
    """A replay of sequences, built in the same way as by `unrolls.UnrollStore`."""

    def __init__(self, replay: SequenceReplay, num_envs: int):
        super().__init__(replay, num_envs)
        self._replay, self._cut = replay, replay.cut

    def _begin(self, step: Step) -> Unfinished:
        zeros = jnp.zeros(self._num_envs, jnp.int32)
        state: Tree = ()
        if jax.tree.leaves(self._replay.state):
            state = jax.tree.map(lambda x: jnp.zeros((self._cut.open, *x.shape), x.dtype), step.state)
        return Unfinished(_rings(step, self._cut.length + 1), zeros - self._cut.burn_in, zeros, state)

    def _make(self, pending: Unfinished, now: Array, step: Step, active: Array | bool) -> tuple[Unfinished, NewItems]:
        """Completes the oldest unfinished sequences that have reached their length, or whose episode has ended."""
        replay, cut = self._replay, self._cut
        held = pending._replace(pending=_recorded(pending.pending, now, step, active))
        full, ended = cut.due(held, now)
        sequence, kept = cut.oldest(held, now, jnp.arange(self._num_envs))
        start, origin = cut.next_clocks(held, now, full, ended)
        state = held.state
        if jax.tree.leaves(state):
            state = select(cut.keeps_state(origin, now), jax.tree.map(lambda x: x[None], step.state), state)
        start, origin, state = select(active, (start, origin, state), (held.start, held.origin, held.state))
        return Unfinished(held.pending, start, origin, state), NewItems(
            sequence._replace(extras=stored_extras(sequence.extras) if jax.tree.leaves(replay.extras) else ()),
            (full | ended) & kept,
            lambda: (replay.priority or unrolls.largest_error)(unrolls.swap_axes(sequence)),
        )

    def _batch(self, items: Sequence) -> Sequence:
        return unrolls.swap_axes(items)


def device_replay(replay: TransitionReplay | SequenceReplay, num_envs: int) -> DeviceReplay:
    """Returns the replay on the device with these settings; raises UsageError if a setting is not supported there."""
    if isinstance(replay, SequenceReplay):
        return DeviceSequences(replay, num_envs)
    return DeviceTransitions(replay, num_envs)


@jax.custom_batching.custom_vmap
def rows_of(table: Array, index: Array) -> Array:
    """Returns `table[index]`, `[B, ...]`.

    On the CPU, it copies row by row, because XLA splits a gather from a large table among its threads even for few
    rows. For 128 rows of DQN's replay on CartPole, that takes 28 microseconds, and copying takes 1.
    """
    if jax.default_backend() != "cpu":
        return table[index]

    def copied(number: Array, rows: Array) -> Array:
        row = jax.lax.dynamic_index_in_dim(table, index[number], keepdims=False)
        return jax.lax.dynamic_update_index_in_dim(rows, row, number, 0)

    return jax.lax.fori_loop(0, len(index), copied, jnp.zeros((len(index), *table.shape[1:]), table.dtype))


@rows_of.def_vmap
def _rows_of_many(count: int, batched: list[bool], table: Array, index: Array) -> tuple[Array, bool]:
    """Returns the rows `[count, B, ...]` with one call of `rows_of`, after joining all tables and all indexes."""
    tables = table if batched[0] else table[None]
    index = index if batched[1] else jnp.broadcast_to(index, (count, *index.shape))
    parts = jnp.arange(count, dtype=index.dtype)[:, None] * (tables.shape[1] if batched[0] else 0)
    rows = rows_of(merge_axes(tables), (index + parts).reshape(-1))
    return rows.reshape(*index.shape, *tables.shape[2:]), True


def _rings(step: Step, span: int) -> Rings:
    """Returns empty ring buffers of `span` timesteps."""
    now = _of_now(step)
    return jax.tree.map(lambda x: jnp.zeros((span, *x.shape), x.dtype), now)


def _recorded(rings: Rings, now: Array, step: Step, active: Array | bool) -> Rings:
    """Returns the ring buffers with timestep number `now` written to them, if `active`."""
    span = len(rings.reward)
    place = select(active, now % span, span)
    return jax.tree.map(lambda ring, x: ring.at[place].set(x.astype(ring.dtype), mode="drop"), rings, _of_now(step))


def _of_now(step: Step) -> Rings:
    step_type, reward, discount, observation = step.timestep
    return Rings(step_type, reward, discount, observation, step.action, step.extras)
