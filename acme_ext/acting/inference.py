"""Applies a policy to many environments with one compiled call."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting import memories
from acme_ext.acting.policy import Context, Policy, StateAndMemory
from acme_ext.acting.variables import VariableClient
from acme_ext.types import FIRST, Array, Params, Tree
from acme_ext.utils import compiling, trees
from acme_ext.utils.packing import Packing

MAX_STEPS = 2**31 - 1
"""The largest number of environment steps that a policy is given; longer runs stay at it."""


class Acted(NamedTuple):
    """A policy's output for K environments."""

    action: np.ndarray  # [K, ...]
    extras: Tree  # [K, ...] NumPy
    state: Tree  # [K, ...] the policy's recurrent state from before the step; NumPy, or still on the device


class Inference(Protocol):
    """Computes an actor's actions, with a policy in its own process or through an inference server."""

    restarted: bool
    """Whether the newest actions don't continue the steps before, because a server has been restarted."""

    def step(self, steps: int, timestep: dm_env.TimeStep) -> Acted:
        """Returns the actions of the actor's B environments at their newest timesteps `[B, ...]`.

        `steps` is the number of environment steps that the run has taken.
        """
        ...

    def begin(self, steps: int, timestep: dm_env.TimeStep) -> None:
        """Requests the result of the next call of `step` in advance, if a server computes it."""

    def update(self, wait: bool = False) -> None:
        """Updates the parameters, if this object holds them and an update is due."""

    def save(self) -> int:
        """Returns the number of steps so far, which is the position in the random stream."""
        ...

    def restore(self, ticks: int) -> None:
        """Restores what `save` returned."""


def reset_and_apply(
    policy: Policy, params: Params, context: Context, observation: Tree, state: Tree
) -> tuple[Array, Tree, Tree, Tree, Tree]:
    """Applies a policy, after resetting its recurrent state where `context.first` is true.

    Args:
        policy: the policy.
        params: the policy's parameters.
        context: the context, with the policy's memory.
        observation: `[B, ...]`.
        state: `[B, ...]` the recurrent state from the step before.

    Returns:
        The actions `[B, ...]`, the extras, the recurrent states before and after the step, and the memory.
    """
    before = trees.select(context.first, policy.init_state(1), state)
    action, after, extras = policy.apply(params, context, observation, before)
    after, memory = after if isinstance(after, StateAndMemory) else (after, context.memory)
    return action, extras, before, after, memory


class InferenceCore(memories.MemoryHolder):
    """Applies a policy to environments, each of which has a slot, and keeps their recurrent states on the device.

    An environment's actions depend on its slot's key and tick, its recurrent state and its observation. The other
    environments of a call change the actions only by rounding. This class is not thread-safe.

    Args:
        policy: the policy.
        slots: S, the number of environments.
        spare: number of additional slots without an environment.
    """

    def __init__(self, policy: Policy, slots: int, *, spare: int = 0):
        rows = slots + spare
        super().__init__(policy, slots, rows)
        self._policy = policy
        self._table = jax.tree.map(jnp.array, policy.init_state(rows))  # copies: SlotCore donates them
        self.needs_first = bool(jax.tree.leaves(self._table)) or self.has_memory
        """Whether the policy needs to know where episodes begin."""
        # Raw key data, because typed keys make each call slower.
        key = jax.random.key(0)
        self._keys, self._key_type = jax.random.key_data(jax.random.split(key, rows)), jax.random.key_impl(key)
        self._ranks = jnp.zeros(rows, jnp.float32)
        self._packing = Packing()  # of actions and extras
        self._compiled: Any = None

    def assign_slots(self, slots: np.ndarray, keys: Array, ranks: np.ndarray) -> None:
        """Assigns slots `[K]` to environments with random keys `[K]` and ranks `[K]` (see `Context`).

        Their next step begins an episode.
        """
        self.forget_episodes(slots)
        self._keys = self._keys.at[slots].set(jax.random.key_data(keys))
        self._ranks = self._ranks.at[slots].set(ranks)

    def step_all(
        self, params: Params, ticks: int, steps: int, first: np.ndarray | Array, reward: np.ndarray, observation: Tree
    ) -> Acted:
        """Computes the actions of all slots, in order.

        Args:
            params: the policy's parameters.
            ticks: number of steps so far; it is folded into each slot's key.
            steps: environment steps that the run has taken.
            first: `[S]` bool, whether an episode begins, so that the recurrent state is reset.
            reward: `[S]` float32, the rewards that came with the observations.
            observation: `[S, ...]`.
        """
        if self._compiled is None:
            self._compiled = self._compile(self._apply_all, params, donate_argnums=4 if self.has_memory else ())
        clock = np.array([ticks, min(steps, MAX_STEPS)], np.int32)  # passing one argument is faster than passing two
        packed, before, self._table, self._memory = self._compiled(
            params, self._keys, self._ranks, self._table, self._memory, clock, first, reward, observation
        )
        action, extras = self._packing.unpack(packed)
        return Acted(action, extras, before)

    def _apply_all(self, params, keys, ranks, state, memory, clock, *arguments):
        return self._apply(params, keys, ranks, state, memory, *clock, *arguments)

    def _apply(self, params, keys, ranks, state, memory, ticks, steps, first, reward, observation):
        keys = jax.random.wrap_key_data(keys, impl=self._key_type)
        keys = jax.vmap(jax.random.fold_in)(keys, jnp.broadcast_to(ticks, ranks.shape))
        context = Context(keys, steps, ranks, reward, first, memory)
        action, extras, *states = reset_and_apply(self._policy, params, context, observation, state)
        return self._packing.pack((action, extras)), *states

    def compilations(self) -> int:
        """Returns the number of compiled programs."""
        return 0 if self._compiled is None else self._compiled._cache_size()

    def _compile(self, function: Callable, params: Params, **options: Any) -> Callable:
        threaded = self._policy.threaded or compiling.is_convolutional(params)
        return compiling.jit(function, threaded=threaded, **options)


class LocalInference:
    """Applies a policy in the actor's own process, without threads or queues.

    Args:
        policy: the policy.
        variables: provides the policy's parameters.
        key: random key; the numbers of the environment and of the step are folded into it.
        num_envs: B.
        rank: `[B]` the ranks of these environments among the run's exploring ones, see `Context`. None: evenly spaced
            in [0, 1].
    """

    restarted = False

    def __init__(
        self, policy: Policy, variables: VariableClient, key: Array, num_envs: int, rank: np.ndarray | None = None
    ):
        self._variables, self._ticks = variables, 0
        self._core = InferenceCore(policy, num_envs)
        rank = np.linspace(0, 1, num_envs, dtype=np.float32) if rank is None else rank
        self._core.assign_slots(np.arange(num_envs), slot_keys(key, num_envs), rank)
        self._none = jnp.zeros(num_envs, jnp.bool_)  # on the device already, which makes calls faster

    def step(self, steps: int, timestep: dm_env.TimeStep) -> Acted:
        first = timestep.step_type == FIRST if self._core.needs_first else self._none
        params, (_, reward, _, observation) = self._variables.params, timestep
        acted = self._core.step_all(params, self._ticks, steps, first, reward, observation)
        self._ticks += 1
        return acted

    def begin(self, steps: int, timestep: dm_env.TimeStep) -> None:
        """Does nothing, because no server computes the actions."""

    def update(self, wait: bool = False) -> None:
        self._variables.update(wait)

    def save(self) -> int:
        return self._ticks

    def restore(self, ticks: int) -> None:
        self._ticks = ticks

    @property
    def core(self) -> InferenceCore:
        """The object that applies the policy and holds its memory."""
        return self._core


def slot_keys(key: Array, num_envs: int) -> Array:
    """Returns the random keys `[B]` of an actor's environments."""
    return jax.vmap(lambda slot: jax.random.fold_in(key, slot))(jnp.arange(num_envs))
