"""Applying a policy: one compiled call for many environments, wherever they are stepped."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import tree

from acme_ext.acting import carries
from acme_ext.acting.policy import Carry, Context, Kept, Policy
from acme_ext.acting.variables import VariableClient
from acme_ext.types import Array, Params, Tree
from acme_ext.utils import compiling

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


class InferenceCore:
    """A policy applied to environments that have a slot each, whose recurrent state stays on the device.

    An environment's actions depend on its slot's key and tick, its own state and what it sees. The others that share a
    call, and how the call is padded, change their rounding alone. Not for several threads at a time.

    Args:
        policy: how to act.
        slots: S, how many environments there may be.
        buckets: sizes to which the environments of a `step` are padded, so that as many programs are compiled and no
            more; the largest is the most that a call may have. None for a core of which only `step_all` is called.
    """

    def __init__(self, policy: Policy, slots: int, *, buckets: Sequence[int] | None = None):
        self._buckets = sorted(buckets or ())
        self.rows = self.padded_rows = 0
        """Environments stepped by `step`, and those with the padding."""
        # One slot more, for the rows that fill a batch.
        self._scratch, rows = slots, slots + bool(buckets)
        self._initial = jax.tree.map(lambda leaf: leaf[:1], policy.init_state(1))
        self.is_recurrent = bool(jax.tree.leaves(self._initial))
        """Whether the policy has recurrent state."""
        self._table = jax.tree.map(jnp.asarray, policy.init_state(rows))
        self._carry: Carry | tuple[()] = jax.tree.map(jnp.array, policy.init_carry(rows))  # copies: they are donated
        self.has_carry = bool(jax.tree.leaves(self._carry))
        """Whether the policy keeps something else for each environment, see `Carry`."""
        self._standing, self._threaded = policy.standing, policy.threaded
        # As numbers, since keys take a call longer to be given.
        key = jax.random.key(0)
        self._keys, implementation = jax.random.key_data(jax.random.split(key, rows)), jax.random.key_impl(key)
        self._ranks = jnp.zeros(rows, jnp.float32)
        self._far = jax.default_backend() != "cpu"
        self._apply: Any = None  # compiled
        self._apply_some: Any = None

        def apply(params, keys, ranks, state, carry, ticks, steps, first, reward, observation):
            keys = jax.random.wrap_key_data(keys, impl=implementation)
            keys = jax.vmap(jax.random.fold_in)(keys, jnp.broadcast_to(ticks, ranks.shape))
            context = Context(keys, steps, ranks, reward, first, carry)
            return reset_and_apply(policy, self._initial, params, context, observation, state)

        def apply_all(params, keys, ranks, state, carry, clock, *arguments):
            return apply(params, keys, ranks, state, carry, *clock, *arguments)

        def apply_some(params, keys, ranks, table, slots, *arguments):
            state, carry = jax.tree.map(lambda leaf: leaf[slots], table)
            action, extras, state, *after = apply(params, keys[slots], ranks[slots], state, carry, *arguments)
            return action, extras, state, jax.tree.map(lambda leaf, rows: leaf.at[slots].set(rows), table, tuple(after))

        self._pure = apply_all, apply_some

    def seat(self, slots: np.ndarray, keys: Array, ranks: np.ndarray) -> None:
        """Gives slots `[K]` to environments with random keys `[K]` and ranks `[K]` (see `Context`)."""
        self._keys = self._keys.at[slots].set(jax.random.key_data(keys))
        self._ranks = self._ranks.at[slots].set(ranks)

    def step_all(
        self, params: Params, ticks: int, steps: int, first: np.ndarray | Array, reward: np.ndarray, observation: Tree
    ) -> Acted:
        """Steps all slots in their order; the arguments are those of `step`."""
        if self._apply is None:
            self._apply = self._compile(self._pure[0], params, donate_argnums=4 if self.has_carry else ())
        clock = np.array([ticks, steps], np.int32)  # one argument takes a call less long to be given than two
        action, extras, before, self._table, self._carry = self._apply(
            params, self._keys, self._ranks, self._table, self._carry, clock, first, reward, observation
        )
        action, extras = self._fetched((action, extras))
        return Acted(action, extras, before)

    def step(
        self,
        params: Params,
        slots: np.ndarray,
        ticks: np.ndarray,
        steps: int,
        first: np.ndarray,
        reward: np.ndarray,
        observation: Tree,
        *,
        with_state: bool = True,
    ) -> Acted:
        """Steps some slots.

        Args:
            params: of the policy.
            slots: `[K]` int32 which, each once.
            ticks: `[K]` int32, how often each has acted; with the slot's key it makes the randomness.
            steps: environment steps that the run has taken.
            first: `[K]` bool, whether recurrent state begins anew.
            reward: `[K]` float32, came with the observations.
            observation: `[K, ...]`.
            with_state: whether the recurrent state from before is wanted; `()` is given if not.
        """
        if self._apply_some is None:
            self._apply_some = self._compile(self._pure[1], params, donate_argnums=3)
        count = len(slots)
        size = next((bucket for bucket in self._buckets if bucket >= count), None)
        if size is None:
            raise ValueError(f"{count} environments at once, and at most {self._buckets[-1]} were asked for")

        def pad(leaf: np.ndarray, value: int = 0) -> np.ndarray:
            if len(leaf) == size:
                return leaf
            padded = np.full((size, *leaf.shape[1:]), value, leaf.dtype)
            padded[:count] = leaf
            return padded

        action, extras, before, (self._table, self._carry) = self._apply_some(
            params,
            self._keys,
            self._ranks,
            (self._table, self._carry),
            pad(slots, self._scratch),
            pad(ticks),
            np.int32(steps),
            pad(first),
            pad(reward),
            observation if count == size else tree.map_structure(pad, observation),
        )
        self.rows, self.padded_rows = self.rows + count, self.padded_rows + size
        return Acted(*self._fetched((action, extras, before if with_state else ()), count))

    def warm_up(self, params: Params, observation: Tree) -> None:
        """Compiles every bucket, for observations `[1, ...]` like this one; no slot's state is changed. What was
        counted of `step` is forgotten.
        """
        for size in self._buckets:
            slots = np.full(size, self._scratch, np.int32)
            zeros = np.zeros(size, np.int32)
            repeated = tree.map_structure(lambda leaf, size=size: np.repeat(leaf, size, axis=0), observation)
            self.step(params, slots, zeros, 0, np.ones(size, np.bool_), np.zeros(size, np.float32), repeated)
        self.rows = self.padded_rows = 0

    @property
    def needs_first(self) -> bool:
        """Whether the policy has to be told where episodes begin."""
        return self.is_recurrent or self.has_carry

    def save_carry(self) -> str | None:
        """Returns what of the policy's carry outlives an episode, as text; None for a policy without any."""
        return carries.pack(self._carry.run) if isinstance(self._carry, Carry) and self.has_carry else None

    def restore_carry(self, text: str | None) -> None:
        """Takes up what `save_carry` returned; slots that it knows nothing of stay as they are."""
        if text is not None and isinstance(self._carry, Carry):
            self._carry = self._carry._replace(run=carries.unpack(text, self._carry.run))

    def standing(self) -> list[list] | None:
        """Returns the policy's standing in JSON's types; None for a policy without any."""
        if self._standing is None or not isinstance(self._carry, Carry):
            return None
        return carries.to_json(self._standing(carries.first(self._carry.run, self._scratch)))

    def brief(self, standing: list[list] | None) -> None:
        """Gives all environments a standing as their policy's `carry.run`; zeros if there is none."""
        if isinstance(self._carry, Carry):
            self._carry = self._carry._replace(run=carries.of_each(standing, self._carry.run))

    def compilations(self) -> int:
        """Returns how many programs have been compiled."""
        return sum(apply._cache_size() for apply in (self._apply, self._apply_some) if apply is not None)

    def _fetched(self, arrays: Tree, count: int | None = None) -> Tree:
        """Returns arrays of the device in NumPy, or so many rows of them: what `jax.device_get` takes longer for."""
        leaves, structure = jax.tree.flatten(arrays)
        if self._far:
            for leaf in leaves:
                leaf.copy_to_host_async()
        return jax.tree.unflatten(structure, [np.asarray(leaf)[:count] for leaf in leaves])

    def _compile(self, function: Callable, params: Params, **options: Any) -> Callable:
        return compiling.jit(function, threaded=self._threaded or compiling.is_convolutional(params), **options)


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


def bucket_sizes(most: int) -> list[int]:
    """Returns batch sizes up to `most` environments: the powers of two, and `most` itself, so that at least half of a
    batch is never padding.
    """
    return [*(2**i for i in range((most - 1).bit_length())), most]


def _columns(rows: Array, like: Array) -> Array:
    """Reshapes `[B]` to broadcast against `[B, ...]`."""
    return rows.reshape(rows.shape + (1,) * (like.ndim - 1))
