"""Environments as pure functions in JAX, and a wrapper with the interface of batched environments."""

import abc
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
from dm_env import specs

from acme_ext.envs.base import BatchedEnvironment
from acme_ext.envs.canonical import ActionScale, bounds_of
from acme_ext.envs.specs import check_observation, single_spec, single_specs
from acme_ext.errors import RunError
from acme_ext.types import FIRST, LAST, MID, Array, Tree


class Moved(NamedTuple):
    """The result of `FunctionalEnvironment.move`."""

    state: Tree
    observation: Tree
    reward: Array  # []
    terminated: Array  # [] bool
    truncated: Array  # [] bool: ended by a time limit; ignored if `terminated`


class Timed(NamedTuple):
    """An environment's state with a step count, for a time limit."""

    inner: Tree
    time: Array  # [] int32 steps of the episode


NEVER = 2**30
"""A time limit, in steps, that disables the limit of environments which would treat it as a termination."""


def strong(state: Tree) -> Tree:
    """Returns a state without weak types; some libraries' initial states contain Python numbers."""
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), state)


class FunctionalState(NamedTuple):
    """An environment's state between calls of `FunctionalEnvironment.reset` and `step`."""

    inner: Tree  # the state of `begin` and `move`
    key: Array  # [] random key for all future steps
    last: Array  # [] bool: the newest timestep was LAST, so the next step is a reset


class FunctionalEnvironment(abc.ABC):
    """One environment as pure functions, for `jax.vmap` and `jax.jit`.

    A subclass implements `begin`, `move` and the specs. `reset` and `step` follow the rule of
    `envs.base.BatchedEnvironment`: the step after a LAST timestep ignores its action and returns the next episode's
    FIRST, with reward 0 and discount 1; a termination has discount 0, and a truncation has discount 1.
    """

    @abc.abstractmethod
    def begin(self, key: Array) -> tuple[Tree, Tree]:
        """Returns `(state, observation)` at an episode's start."""

    @abc.abstractmethod
    def move(self, key: Array, state: Tree, action: Array) -> Moved:
        """Returns the result of an action, in an episode that has not ended."""

    @abc.abstractmethod
    def observation_spec(self) -> Tree:
        """Specs of an observation."""

    @abc.abstractmethod
    def action_spec(self) -> specs.Array:
        """Spec of an action."""

    def reset(self, key: Array) -> tuple[FunctionalState, dm_env.TimeStep]:
        """Returns `(state, timestep)` at the first episode's start; all randomness comes from the key."""
        import jax
        import jax.numpy as jnp

        key, begin_key = jax.random.split(key)
        inner, observation = self.begin(begin_key)
        timestep = dm_env.TimeStep(jnp.uint8(FIRST), jnp.float32(0.0), jnp.float32(1.0), self._of_spec(observation))
        return FunctionalState(inner, key, jnp.bool_(False)), timestep

    def step(self, state: FunctionalState, action: Array) -> tuple[FunctionalState, dm_env.TimeStep]:
        """Returns `(state, timestep)` after an action, or at the next episode's start if the last one had ended."""
        import jax
        import jax.numpy as jnp

        from acme_ext.utils import trees

        key, use = jax.random.split(state.key)
        moved = self.move(use, state.inner, action)
        inner, first = self.begin(use)
        _check_numbers(_name_of(self), moved)
        _check_state(_name_of(self), inner, moved.state)
        reset = state.last
        ended = ~reset & (moved.terminated | moved.truncated)
        inner, observation = trees.select(
            reset, (inner, self._of_spec(first)), (moved.state, self._of_spec(moved.observation))
        )
        timestep = dm_env.TimeStep(
            step_type=trees.select(reset, FIRST, trees.select(ended, LAST, MID)).astype(jnp.uint8),
            reward=trees.select(reset, 0.0, moved.reward).astype(jnp.float32),
            discount=trees.select(~reset & moved.terminated, 0.0, 1.0).astype(jnp.float32),
            observation=observation,
        )
        return FunctionalState(inner, key, ended), timestep

    def _of_spec(self, observation: Tree) -> Tree:
        """Returns an observation in its spec's dtypes; raises RunError if its structure or shapes differ."""
        import jax
        import jax.numpy as jnp

        def zeros(x: Any) -> np.ndarray:  # traced arrays have shapes, but no numbers to convert to NumPy's
            kind = jnp.result_type(x)
            return np.broadcast_to(np.zeros((), kind if kind.kind in "biuf" else np.float32), jnp.shape(x))

        fields = single_specs(self.observation_spec())
        check_observation(_name_of(self), fields, jax.tree.map(zeros, observation))
        return jax.tree.map(lambda spec, x: jnp.asarray(x, spec.dtype), fields, observation)


class CanonicalFunctional(FunctionalEnvironment):
    """Wraps an environment to take actions `[A]` in [-1, 1], as `envs.canonical.CanonicalActions` does for batches."""

    def __init__(self, environment: FunctionalEnvironment):
        self._environment, self._scale = environment, ActionScale.of(environment.action_spec())

    def begin(self, key: Array) -> tuple[Tree, Tree]:
        return self._environment.begin(key)

    def move(self, key: Array, state: Tree, action: Array) -> Moved:
        scale = self._scale
        scaled = scale.middle + scale.half * action.reshape(scale.middle.shape)
        return self._environment.move(key, state, scaled.clip(scale.minimum, scale.maximum))

    def observation_spec(self) -> Tree:
        return self._environment.observation_spec()

    def action_spec(self) -> specs.Array:
        return self._scale.spec


def _name_of(environment: FunctionalEnvironment) -> str:
    """Returns an environment's name in messages."""
    inner = environment._environment if isinstance(environment, CanonicalFunctional) else environment
    return type(inner).__name__


def _check_numbers(name: str, moved: Moved) -> None:
    """Raises RunError, naming environment and field, if `move` returned an array instead of a number."""
    import jax.numpy as jnp

    for what in ("reward", "terminated", "truncated"):
        if (shape := jnp.shape(getattr(moved, what))) != ():
            raise RunError(f"{name} delivered {what!r} of shape {shape}; it must be one number, of shape ().")


def _check_state(name: str, begun: Tree, moved: Tree) -> None:
    """Raises RunError, naming the environment, if the states of `begin` and `move` differ in structure or types."""
    import jax
    import jax.numpy as jnp

    def kind(x: Any) -> str:
        key = hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        return f"{x.dtype if key else jnp.result_type(x)}{list(jnp.shape(x))}"

    kinds = [jax.tree_util.tree_flatten_with_path(jax.tree.map(kind, state)) for state in (begun, moved)]
    if kinds[0][1] != kinds[1][1]:
        raise RunError(f"{name}.move returns a state of another structure than {name}.begin: they must be the same.")
    for (path, one), (_, other) in zip(*(leaves for leaves, _ in kinds), strict=True):
        if one != other:
            where = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise RunError(
                f"{name}.begin returns a state with {one}{where}, and {name}.move returns one with {other}: they must "
                "be the same."
            )


def canonical_functional(environment: FunctionalEnvironment) -> FunctionalEnvironment:
    """Returns the environment with continuous actions scaled to [-1, 1]; unchanged if actions are not continuous."""
    return environment if bounds_of(environment.action_spec()) is None else CanonicalFunctional(environment)


def row_keys(seed: int, num_envs: int) -> Array:
    """Returns the random keys `[B]` of a batch's environments, for `FunctionalEnvironment.reset`."""
    import jax
    import jax.numpy as jnp

    key = jax.random.key(seed)
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(num_envs))


class FunctionalBatch(BatchedEnvironment):
    """A batch of a functional environment, stepped by one compiled call on the CPU.

    Args:
        environment: the environment.
        num_envs: B.
        seed: random seed, see `row_keys`.
    """

    def __init__(self, environment: FunctionalEnvironment, num_envs: int, seed: int):
        import jax

        self.num_envs, self._environment, self._seed = num_envs, environment, seed
        self._device = jax.devices("cpu")[0]
        # Environments with arrays or lists as fields have no hash.
        made = _compiled if _has_hash(environment) else _compiled.__wrapped__
        self._reset, self._step = made(environment)
        self._state: Any = None
        self._resets = 0

    def reset(self) -> dm_env.TimeStep:
        import jax

        with jax.default_device(self._device):
            keys = row_keys(self._seed, self.num_envs)
            if self._resets:  # a single environment may be reset by hand before each episode
                keys = jax.vmap(jax.random.fold_in, (0, None))(keys, self._resets)
            self._resets += 1
            return self._keep(self._reset(keys))

    def step(self, actions: Any) -> dm_env.TimeStep:
        import jax

        actions = np.asarray(actions, self.action_spec().dtype)
        with jax.default_device(self._device):
            return self._keep(self._step(self._state, actions))

    def _keep(self, stepped: tuple[FunctionalState, dm_env.TimeStep]) -> dm_env.TimeStep:
        import jax

        self._state, timestep = stepped
        return self.checked(jax.tree.map(np.asarray, timestep))

    def observation_spec(self) -> Tree:
        return single_specs(self._environment.observation_spec())

    def action_spec(self) -> specs.Array:
        return single_spec(self._environment.action_spec())

    def close(self) -> None:
        self._state = None


def _has_hash(environment: FunctionalEnvironment) -> bool:
    try:
        hash(environment)
    except TypeError:
        return False
    return True


@functools.lru_cache(maxsize=32)
def _compiled(environment: FunctionalEnvironment) -> tuple[Callable, Callable]:
    """Returns the compiled functions that reset and step a batch of an environment."""
    import jax

    from acme_ext.utils import compiling

    return compiling.jit(jax.vmap(environment.reset)), compiling.jit(jax.vmap(environment.step))
