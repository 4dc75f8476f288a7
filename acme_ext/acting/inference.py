"""Applying a policy: one compiled call for many environments, wherever they are stepped."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting import carries
from acme_ext.acting.policy import Context, Kept, Policy
from acme_ext.acting.variables import VariableClient
from acme_ext.types import Array, Params, Tree
from acme_ext.utils import compiling
from acme_ext.utils.packing import Packing

FIRST = int(dm_env.StepType.FIRST)


class Acted(NamedTuple):
    """What a policy gave for K environments."""

    action: np.ndarray  # [K, ...]
    extras: Tree  # [K, ...] NumPy
    state: Tree  # [K, ...] the recurrent state that the policy had before, NumPy or still on the device


class Inference(Protocol):
    """What an actor has its actions from: a policy in its own process, or a server's."""

    def step(self, steps: int, timestep: dm_env.TimeStep) -> Acted:
        """Returns the actions of the actor's B environments at their newest timesteps `[B, ...]`, when the run has
        taken so many environment steps.
        """
        ...

    def begin(self, steps: int, timestep: dm_env.TimeStep) -> None:
        """Begins what `step` will be called for next, if that can be done elsewhere meanwhile."""

    def update(self, wait: bool = False) -> None:
        """Renews the parameters, if they are held here and it is time to."""

    def save(self) -> int:
        """Returns how far the randomness has come."""
        ...

    def restore(self, ticks: int) -> None:
        """Takes up what `save` returned."""


def reset_and_apply(
    policy: Policy, initial: Tree, params: Params, context: Context, observation: Tree, state: Tree
) -> tuple[Array, Tree, Tree, Tree, Tree]:
    """Applies a policy with its recurrent state begun anew where `context.first`.

    Args:
        policy: how to act.
        initial: its recurrent state at an episode's start, `[1, ...]`.
        params: of the policy.
        context: with the policy's carry.
        observation: `[B, ...]`.
        state: `[B, ...]` recurrent, from the step before.

    Returns:
        The actions `[B, ...]`, the extras, the recurrent state that they were chosen with, that after them, and the
        carry.
    """
    before = jax.tree.map(lambda new, old: jnp.where(_columns(context.first, old), new, old), initial, state)
    action, after, extras = policy.apply(params, context, observation, before)
    after, carry = after if isinstance(after, Kept) else (after, context.carry)
    return action, extras, before, after, carry


class InferenceCore(carries.CarryHolder):
    """A policy applied to environments that have a slot each, whose recurrent state stays on the device.

    An environment's actions depend on its slot's key and tick, its own state and what it sees. The others that share a
    call change their rounding alone. Not for several threads at a time.

    Args:
        policy: how to act.
        slots: S, how many environments there are.
        spare: slots beside these that nobody has.
    """

    def __init__(self, policy: Policy, slots: int, *, spare: int = 0):
        rows = slots + spare
        super().__init__(policy, slots, rows)
        self._policy = policy
        self._initial = jax.tree.map(lambda leaf: leaf[:1], policy.init_state(1))
        self.needs_first = bool(jax.tree.leaves(self._initial)) or self.has_carry
        """Whether the policy has to be told where episodes begin."""
        self._table = jax.tree.map(jnp.array, policy.init_state(rows))  # copies: SlotCore donates them
        # As numbers, since keys take a call longer to be given.
        key = jax.random.key(0)
        self._keys, self._key_type = jax.random.key_data(jax.random.split(key, rows)), jax.random.key_impl(key)
        self._ranks = jnp.zeros(rows, jnp.float32)
        self._packing = Packing()  # of actions and extras
        self._compiled: Any = None

    def seat(self, slots: np.ndarray, keys: Array, ranks: np.ndarray) -> None:
        """Gives slots `[K]` to environments with random keys `[K]` and ranks `[K]` (see `Context`)."""
        self._keys = self._keys.at[slots].set(jax.random.key_data(keys))
        self._ranks = self._ranks.at[slots].set(ranks)

    def step_all(
        self, params: Params, ticks: int, steps: int, first: np.ndarray | Array, reward: np.ndarray, observation: Tree
    ) -> Acted:
        """Steps all slots in their order.

        Args:
            params: of the policy.
            ticks: how often they have acted; with a slot's key it makes the randomness.
            steps: environment steps that the run has taken.
            first: `[S]` bool, whether recurrent state begins anew.
            reward: `[S]` float32, came with the observations.
            observation: `[S, ...]`.
        """
        if self._compiled is None:
            self._compiled = self._compile(self._apply_all, params, donate_argnums=4 if self.has_carry else ())
        clock = np.array([ticks, steps], np.int32)  # one argument takes a call less long to be given than two
        packed, before, self._table, self._carry = self._compiled(
            params, self._keys, self._ranks, self._table, self._carry, clock, first, reward, observation
        )
        action, extras = self._packing.unpack(packed)
        return Acted(action, extras, before)

    def _apply_all(self, params, keys, ranks, state, carry, clock, *arguments):
        return self._apply(params, keys, ranks, state, carry, *clock, *arguments)

    def _apply(self, params, keys, ranks, state, carry, ticks, steps, first, reward, observation):
        keys = jax.random.wrap_key_data(keys, impl=self._key_type)
        keys = jax.vmap(jax.random.fold_in)(keys, jnp.broadcast_to(ticks, ranks.shape))
        context = Context(keys, steps, ranks, reward, first, carry)
        action, extras, *states = reset_and_apply(self._policy, self._initial, params, context, observation, state)
        return self._packing.pack((action, extras)), *states

    def compilations(self) -> int:
        """Returns how many programs have been compiled."""
        return 0 if self._compiled is None else self._compiled._cache_size()

    def _compile(self, function: Callable, params: Params, **options: Any) -> Callable:
        threaded = self._policy.threaded or compiling.is_convolutional(params)
        return compiling.jit(function, threaded=threaded, **options)


class LocalInference:
    """A policy applied in the actor's own process: no thread, no queue, no waiting.

    Args:
        policy: how to act.
        variables: gives the policy's parameters.
        key: the base of all randomness; each environment and each step folds its own number into it.
        num_envs: B.
        rank: `[B]` which of the run's exploring environments these are, see `Context`; None spreads [0, 1] over them.
    """

    def __init__(
        self, policy: Policy, variables: VariableClient, key: Array, num_envs: int, rank: np.ndarray | None = None
    ):
        self._variables, self._ticks = variables, 0
        self._core = InferenceCore(policy, num_envs)
        rank = np.linspace(0, 1, num_envs, dtype=np.float32) if rank is None else rank
        self._core.seat(np.arange(num_envs), slot_keys(key, num_envs), rank)
        self._none = jnp.zeros(num_envs, jnp.bool_)  # on the device, which takes a call less long to be given

    def step(self, steps: int, timestep: dm_env.TimeStep) -> Acted:
        first = timestep.step_type == FIRST if self._core.needs_first else self._none
        params, (_, reward, _, observation) = self._variables.params, timestep
        acted = self._core.step_all(params, self._ticks, steps, first, reward, observation)
        self._ticks += 1
        return acted

    def begin(self, steps: int, timestep: dm_env.TimeStep) -> None:
        """Does nothing: there is no elsewhere."""

    def update(self, wait: bool = False) -> None:
        self._variables.update(wait)

    def save(self) -> int:
        return self._ticks

    def restore(self, ticks: int) -> None:
        self._ticks = ticks

    @property
    def core(self) -> InferenceCore:
        """What applies the policy, and keeps its carry."""
        return self._core


def slot_keys(key: Array, num_envs: int) -> Array:
    """Returns the random keys `[B]` of an actor's environments."""
    return jax.vmap(lambda slot: jax.random.fold_in(key, slot))(jnp.arange(num_envs))


def _columns(rows: Array, like: Array) -> Array:
    """Reshapes `[B]` to broadcast against `[B, ...]`."""
    return rows.reshape(rows.shape + (1,) * (like.ndim - 1))
