"""Replay of transitions in the device's memory, as pure functions, for runs that are one compiled program.

Items, n-step returns, discounts, priorities and the rate limit are those of `TransitionReplay`, whose settings are
read; `tests/replay/test_device.py` holds them to its writer. There are no blocks: each item is drawn by itself.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import dm_env
import jax
import jax.numpy as jnp

from acme_ext.errors import UsageError
from acme_ext.replay import nstep
from acme_ext.replay.transitions import TransitionReplay
from acme_ext.types import Array, Transition, Tree, stored_extras
from acme_ext.utils.trees import select

_LAST = int(dm_env.StepType.LAST)
_GROUP = 256  # priorities that are summed together


class Pending(NamedTuple):
    """The newest n + 1 timesteps of all environments with what was done at them; rings over time."""

    step_type: Array  # [n + 1, N]
    reward: Array  # [n + 1, N]
    discount: Array  # [n + 1, N] the environment's
    observation: Tree  # [n + 1, N, ...]
    action: Array  # [n + 1, N, ...]
    extras: Tree  # [n + 1, N, ...]


class DeviceReplayState(NamedTuple):
    """What is in a device's replay."""

    items: Transition  # [max_size, ...]
    weight: Array  # [groups, 256] p**alpha, 0 for no item; of a uniform replay [0]
    inserted: Array  # [] int32 items in all
    ticks: Array  # [] int32 timesteps in all
    credit: Array  # [] float32 samples that the rate limit allows now
    pending: Pending


class Drawn(NamedTuple):
    """A batch."""

    items: Transition  # [B, ...]
    index: Array  # [B] int32 places in the replay
    probability: Array  # [B] float32 with which each was drawn


class DeviceReplay:
    """A `TransitionReplay`'s settings as pure functions of a `DeviceReplayState`.

    Args:
        replay: uniform or prioritized.
        num_envs: N, environments that step together.

    Raises:
        UsageError: a setting that can't be honoured here.
    """

    def __init__(self, replay: TransitionReplay, num_envs: int):
        if replay.rows_per_item not in (None, 1):
            raise UsageError(
                f"rows_per_item is {replay.rows_per_item}: a replay on the device draws every transition by itself; "
                "leave it out."
            )
        if replay.keeps_one_step:
            raise UsageError(
                "a replay on the device keeps no single steps beside those of n: this agent can't have it."
            )
        if replay.max_size < num_envs:
            raise UsageError(f"max_size is {replay.max_size}: it must be at least num_envs, which is {num_envs}.")
        self._replay, self._num_envs, self._span = replay, num_envs, replay.n_step + 1
        self._limit = replay.limit
        self._first_error: Callable[..., Array] = replay.priority or nstep.largest_error

    def init(self, timestep: dm_env.TimeStep, action: Array, extras: Tree) -> DeviceReplayState:
        """Returns an empty replay, for timesteps, actions and extras `[N, ...]` like these; shapes and dtypes are
        enough.
        """

        def ring(tree: Tree) -> Tree:
            return jax.tree.map(lambda x: jnp.zeros((self._span, *x.shape), x.dtype), tree)

        def table(tree: Tree) -> Tree:
            return jax.tree.map(lambda x: jnp.zeros((self._replay.max_size, *x.shape[1:]), x.dtype), tree)

        reward = jnp.zeros(self._num_envs, jnp.float32)
        items = Transition(
            observation=timestep.observation,
            action=action,
            reward=reward,
            discount=reward,
            next_observation=timestep.observation,
            extras=stored_extras(extras) if self._replay.extras else (),
        )
        groups = -(-self._replay.max_size // _GROUP)
        return DeviceReplayState(
            items=table(items),
            weight=jnp.zeros((groups, _GROUP) if self._replay.prioritized else (0,), jnp.float32),
            inserted=jnp.int32(0),
            ticks=jnp.int32(0),
            credit=jnp.float32(0.0),
            pending=Pending(
                *(ring(x) for x in (timestep.step_type, reward, reward, timestep.observation, action, extras))
            ),
        )

    def add(
        self, state: DeviceReplayState, timestep: dm_env.TimeStep, action: Array, extras: Tree, active: Array | bool
    ) -> DeviceReplayState:
        """Adds timesteps `[N]` with the actions taken at them, and inserts the transitions that began n steps before.

        Args:
            state: the replay.
            timestep: `[N, ...]`.
            action: `[N, ...]`; where the timestep is LAST none was taken.
            extras: `[N, ...]` what the policy gave with the action.
            active: `[]` whether anything is to be added; if not, the replay stays as it is.
        """
        replay, span, now = self._replay, self._span, state.ticks
        place = now % span
        new = Pending(timestep.step_type, timestep.reward, timestep.discount, timestep.observation, action, extras)
        pending = jax.tree.map(
            lambda ring, x: ring.at[select(active, place, span)].set(x.astype(ring.dtype), mode="drop"),
            state.pending,
            new,
        )
        # The transitions that begin n ticks ago; the sums are `nstep.NStepWriter`'s.
        start = (now + 1) % span
        rewards = pending.reward
        if replay.max_abs_reward is not None:
            rewards = jnp.clip(rewards, -replay.max_abs_reward, replay.max_abs_reward)
        started = running = pending.step_type[start] != _LAST
        returns = jnp.zeros(self._num_envs, jnp.float32)
        discounts, length = jnp.ones_like(returns), jnp.zeros(self._num_envs, jnp.int32)
        for k in range(1, replay.n_step + 1):
            at = (start + k) % span
            returns += select(running, discounts * rewards[at], 0.0)
            discounts = select(running, discounts * (replay.discount * pending.discount[at]), discounts)
            length += running
            running &= pending.step_type[at] != _LAST
        env, end = jnp.arange(self._num_envs), (start + length) % span

        def at_end(ring: Array) -> Array:
            return ring[end, env]

        extras_tm1 = jax.tree.map(lambda ring: ring[start], pending.extras)
        items = Transition(
            observation=jax.tree.map(lambda ring: ring[start], pending.observation),
            action=pending.action[start],
            reward=returns,
            discount=discounts,
            next_observation=jax.tree.map(at_end, pending.observation),
            extras=stored_extras(extras_tm1) if replay.extras else (),
        )
        valid = started & (now >= replay.n_step) & active
        number = jnp.cumsum(valid)
        index = select(valid, (state.inserted + number - 1) % replay.max_size, replay.max_size)
        weight = state.weight
        if replay.prioritized:
            errors = self._first_error(returns, discounts, extras_tm1, jax.tree.map(at_end, pending.extras))
            weight = self._weighed(weight, index, errors)
        count = number[-1]
        return DeviceReplayState(
            items=jax.tree.map(lambda table, x: table.at[index].set(x, mode="drop"), state.items, items),
            weight=weight,
            inserted=state.inserted + count,
            ticks=now + jnp.asarray(active, jnp.int32),
            credit=self._credit(state, count, active),
            pending=pending,
        )

    def due(self, state: DeviceReplayState) -> Array:
        """Returns `[]` bool: whether the rate limit allows a batch."""
        return state.credit >= self._replay.batch_size

    def draw(self, state: DeviceReplayState, key: Array) -> tuple[DeviceReplayState, Drawn]:
        """Returns a batch that was drawn with replacement, and the replay whose limit counts it."""
        size, batch = jnp.minimum(state.inserted, self._replay.max_size), self._replay.batch_size
        if self._replay.prioritized:
            index, probability = self._by_weight(state.weight, key)
        else:
            index = jax.random.randint(key, (batch,), 0, size)
            probability = jnp.full(batch, 1.0, jnp.float32) / size
        items = jax.tree.map(lambda table: table[index], state.items)
        return state._replace(credit=state.credit - batch), Drawn(items, index, probability)

    def reprioritized(self, state: DeviceReplayState, index: Array, errors: Array | None) -> DeviceReplayState:
        """Returns the replay with the priorities of |TD errors| `[B]` at places `[B]`; of a uniform one as it is."""
        if not self._replay.prioritized or errors is None:
            return state
        return state._replace(weight=self._weighed(state.weight, index, errors))

    def _weighed(self, weight: Array, index: Array, errors: Array) -> Array:
        value = (errors + self._replay.priority_offset) ** self._replay.priority_exponent
        index = select(index == self._replay.max_size, weight.size, index)
        return weight.at[index // _GROUP, index % _GROUP].set(value.astype(jnp.float32), mode="drop")

    def _by_weight(self, weight: Array, key: Array) -> tuple[Array, Array]:
        """Returns places `[B]` drawn in proportion to their weight, and the probabilities: first a group, then one of
        its members, so that no sum over all is made for each.
        """
        groups = jnp.cumsum(jnp.sum(weight, axis=1))
        total = groups[-1]
        point = jax.random.uniform(key, (self._replay.batch_size,)) * total
        group = jnp.minimum(jnp.searchsorted(groups, point, side="right"), len(groups) - 1)
        rest = point - select(group > 0, groups[group - 1], 0.0)
        member = jnp.cumsum(weight[group], axis=1)  # [B, 256]
        # Rounding may step over the last member that has a weight.
        last = jnp.sum(member < member[:, -1:], axis=1)
        place = jnp.minimum(jnp.sum(member <= rest[:, None], axis=1), last)
        return group * _GROUP + place, weight[group, place] / total

    def _credit(self, state: DeviceReplayState, count: Array, active: Array | bool) -> Array:
        """Returns the samples that `RateLimit.samples_allowed` allows, less those drawn, after so many inserts more; up
        to rounding, for it is added up.
        """
        limit, batch = self._limit, self._replay.batch_size
        after = state.inserted + count
        ready = after >= (limit.min_size if limit else 1)
        if limit is None or limit.samples_per_insert is None:  # a batch for each time that it is asked
            return select(active & ready, jnp.float32(batch), state.credit)
        ratio = limit.samples_per_insert
        first = (after - limit.min_size) * ratio + math.floor(limit.error_buffer)
        more = select(state.inserted >= limit.min_size, state.credit + ratio * count, first)
        return select(ready, more, 0.0).astype(jnp.float32)
