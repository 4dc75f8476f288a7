"""Gymnasium's environments as dm_env, one by one or natively batched.

Box, Discrete, MultiDiscrete and MultiBinary spaces are supported, and for observations Dict and Tuple of these. In
observations a Discrete or MultiDiscrete number is one-hot, and pictures have their channels last.
Gymnasium's own checkers and its time-limit wrapper are left out; the limit is kept here, and is a truncation.
"""

import contextlib
import copy
import importlib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import dm_env
import gymnasium
import numpy as np
from dm_env import specs
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator

from acme_ext.envs import base
from acme_ext.envs.backend import Backend
from acme_ext.envs.specs import channels_first, one_hot, single_spec
from acme_ext.errors import UsageError
from acme_ext.specs import PICTURE_SIDE, RULES
from acme_ext.types import Tree

# Read and tested: they reset a row in the step after it ended, and tell a truncation from a termination. Not all do:
# those of phys2d set the rows that go on back by a step whenever another row is reset.
_NATIVE = ("gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",)

_registered: dict[str, set[str]] = {}  # by module, the ids that came with its import

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Gym(Backend):
    """`gym:NAME`, an id gymnasium knows, or `gym:MODULE:NAME`, one that importing the module registers."""

    def names(self) -> Collection[str]:
        # Atari is a family of its own.
        return [name for name, spec in gymnasium.registry.items() if not str(spec.entry_point).startswith("ale_py")]

    def canonical(self, name: str) -> str:
        if name.startswith("ALE/"):
            raise UsageError(f"'gym:{name}' is not offered; Atari is a family of its own, as in 'atari:Pong'.")
        module, _, identifier = name.rpartition(":")
        if module:
            before = set(gymnasium.registry)
            with _user_errors(name):
                importlib.import_module(module)
            _registered.setdefault(module, set()).update(gymnasium.registry.keys() - before)
        return identifier

    def alternatives(self, name: str) -> Collection[str]:
        module, _, _ = name.rpartition(":")
        return [f"{module}:{other}" for other in _registered[module]] if module else self.names()

    def options(self, name: str) -> Mapping[str, Any]:
        """What the environment's constructor takes, and `max_episode_steps`."""
        spec = gymnasium.registry[name]
        defaults: dict[str, Any] = {}
        if spec.entry_point is not None:
            with _user_errors(name):
                creator = spec.entry_point if callable(spec.entry_point) else load_env_creator(spec.entry_point)
            for parameter in inspect.signature(creator).parameters.values():
                if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                    defaults[parameter.name] = None if parameter.default is parameter.empty else parameter.default
        defaults.update(spec.kwargs)
        defaults.pop("render_mode", None)
        return {**defaults, "max_episode_steps": spec.max_episode_steps}

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        spec = copy.deepcopy(gymnasium.registry[name])
        limit = options.pop("max_episode_steps", spec.max_episode_steps)
        # Without the wrappers that only check, and the time limit, which is kept here.
        spec.max_episode_steps, spec.order_enforce, spec.disable_env_checker = None, False, True
        with _user_errors(name):
            environment = gymnasium.make(spec, **options)
        return GymEnvironment(environment, seed=seed, max_episode_steps=limit)

    def load_batch(
        self, name: str, num_envs: int, seed: int, evaluation: bool, **options: Any
    ) -> base.BatchedEnvironment | None:
        """Gymnasium's own vectorised implementation where the id has one that is right."""
        if num_envs == 1 or gymnasium.registry[name].vector_entry_point not in _NATIVE:
            return None
        with _user_errors(name):
            environments = gymnasium.make_vec(name, num_envs, vectorization_mode="vector_entry_point", **options)
        return GymVectorEnvironment(environments, seed=seed)


@contextlib.contextmanager
def _user_errors(name: str) -> Iterator[None]:
    """What gymnasium refuses, and what a backend of its own misses, as a sentence for the user."""
    try:
        yield
    except (gymnasium.error.Error, ImportError) as error:
        raise UsageError(f"gymnasium can't make {name!r}: {error}") from error


class GymEnvironment(base.SingleEnvironment):
    """One gymnasium environment as a dm_env in single precision; a time limit in steps truncates."""

    def __init__(self, environment: gymnasium.Env, *, seed: int | None = None, max_episode_steps: int | None = None):
        self.environment = environment
        self._observation_spec, self._observe = _observations(environment.observation_space)
        self._action_spec, self._act = _actions(environment.action_space)
        self._seed = seed  # Given to the first reset only; the episodes after it go on with the same random stream.
        self._limit = max_episode_steps or 0
        self._length = 0
        self._ended = True

    def reset(self) -> dm_env.TimeStep:
        observation, _ = self.environment.reset(seed=self._seed)
        self._seed = None
        self._length = 0
        self._ended = False
        return dm_env.restart(self._fitted(observation))

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._ended:
            return self.reset()
        observation, reward, terminated, truncated, _ = self.environment.step(self._act(action))
        if isinstance(reward, int | float | np.number | np.ndarray):  # anything else is told where it is checked
            reward = np.float32(reward)
        self._length += 1
        if terminated:
            kind, discount = dm_env.StepType.LAST, _ZERO
        elif truncated or self._length == self._limit:
            kind, discount = dm_env.StepType.LAST, _ONE
        else:
            return dm_env.TimeStep(dm_env.StepType.MID, reward, _ONE, self._fitted(observation))
        self._ended = True
        return dm_env.TimeStep(kind, reward, discount, self._fitted(observation))

    def _fitted(self, observation: Any) -> Tree:
        """Returns an observation as its spec says, or one that can't be as it is: it is told where it is checked."""
        try:
            return self._observe(observation)
        except (LookupError, TypeError, ValueError):
            return observation

    def observation_spec(self) -> Tree:
        return self._observation_spec

    def action_spec(self) -> specs.Array:
        return self._action_spec

    @property
    def render_fps(self) -> float | None:
        """Pictures per second, as the environment states them."""
        return self.environment.metadata.get("render_fps")

    def render(self) -> np.ndarray:
        """Returns a picture of what is there, uint8 `[H, W, 3]`; raises UsageError where the environment draws none."""
        drawn: Any = self.environment.unwrapped
        if "rgb_array" not in drawn.metadata.get("render_modes", ()):
            raise UsageError(f"{type(drawn).__name__} of gymnasium draws no pictures (render mode 'rgb_array').")
        if drawn.render_mode is None:  # it is made without, since training draws nothing
            drawn.render_mode = "rgb_array"
        with _user_errors(type(drawn).__name__):
            return np.asarray(drawn.render())

    def close(self) -> None:
        self.environment.close()


class GymVectorEnvironment(base.BatchedEnvironment):
    """A gymnasium `VectorEnv` that resets a row in the step after it ended.

    The rows draw from one random stream: a seed fixes the batch as a whole, and a row's episodes depend on the others'.
    """

    def __init__(self, environments: gymnasium.vector.VectorEnv, *, seed: int | None = None):
        mode = environments.metadata.get("autoreset_mode")
        if mode is not gymnasium.vector.AutoresetMode.NEXT_STEP:
            raise ValueError(f"a vectorised environment must reset with NEXT_STEP, not {mode}.")
        self.environments = environments
        self.num_envs = environments.num_envs
        self._observation_spec, self._observe = _observations(environments.single_observation_space)
        self._action_spec, self._act = _actions(environments.single_action_space, batched=True)
        self._seed = seed
        self._ended = np.zeros(self.num_envs, bool)

    def reset(self) -> dm_env.TimeStep:
        observation, _ = self.environments.reset(seed=self._seed)
        self._seed = None
        n = self.num_envs
        self._ended = np.zeros(n, bool)
        return self.checked(
            dm_env.TimeStep(
                np.zeros(n, np.uint8), np.zeros(n, np.float32), np.ones(n, np.float32), self._observe(observation)
            )
        )

    def step(self, actions: Any) -> dm_env.TimeStep:
        observation, reward, terminated, truncated, _ = self.environments.step(self._act(actions))
        began, self._ended = self._ended, terminated | truncated
        step_type = self._ended + np.uint8(base.MID)
        step_type[began] = base.FIRST
        reward = reward.astype(np.float32)
        reward[began] = 0.0
        discount = 1.0 - terminated.astype(np.float32)
        return self.checked(dm_env.TimeStep(step_type, reward, discount, self._observe(observation)))

    def observation_spec(self) -> Tree:
        return self._observation_spec

    def action_spec(self) -> specs.Array:
        return self._action_spec

    def close(self) -> None:
        self.environments.close()


def _observations(space: spaces.Space, name: str = "observation") -> tuple[Tree, Callable[[Any], Tree]]:
    """A space's spec in single precision, and the function that makes an observation, or a batch of them, fit it."""
    if isinstance(space, spaces.Dict):
        parts = {key: _observations(value, key) for key, value in space.items()}
        converters = [(key, convert) for key, (_, convert) in parts.items()]
        spec = {key: spec for key, (spec, _) in parts.items()}
        return spec, lambda value: {key: convert(value[key]) for key, convert in converters}
    if isinstance(space, spaces.Tuple):
        pairs = [_observations(value, f"{name}_{i}") for i, value in enumerate(space)]
        functions = [convert for _, convert in pairs]
        return tuple(spec for spec, _ in pairs), lambda value: tuple(
            f(v) for f, v in zip(functions, value, strict=True)
        )
    if isinstance(space, spaces.Discrete) and name not in RULES:
        spec, convert = one_hot(name, [space.n], [space.start])
        return spec, lambda value: convert(np.asarray(value)[..., None])
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1 and name not in RULES:
        spec, convert = one_hot(name, space.nvec.tolist(), space.start.tolist())
        return spec, lambda value: convert(np.asarray(value))
    spec, start = _leaf(space, name)
    dtype = spec.dtype
    if start is not None:
        return spec, lambda value: np.asarray(value - start, dtype)
    if isinstance(spec, specs.BoundedArray) and dtype == np.uint8:
        # Of a small grid with many channels the shape doesn't tell.
        if channels_first(spec.shape) and min(spec.shape[1:]) >= PICTURE_SIDE:
            return _moved(spec, lambda value: np.moveaxis(np.asarray(value, dtype), -3, -1))
        if len(spec.shape) == 2 and min(spec.shape) >= PICTURE_SIDE:
            return _moved(spec, lambda value: np.asarray(value, dtype)[..., None])
    return spec, lambda value: np.asarray(value, dtype)


def _moved(spec: specs.BoundedArray, convert: Callable[[Any], np.ndarray]) -> tuple[specs.Array, Callable]:
    """Returns the spec `[H, W, C]` of a picture whose channels come elsewhere, and what moves them."""
    low, high = (convert(np.broadcast_to(bound, spec.shape)) for bound in (spec.minimum, spec.maximum))
    return specs.BoundedArray(low.shape, spec.dtype, low, high, spec.name), convert


def _actions(space: spaces.Space, batched: bool = False) -> tuple[specs.Array, Callable[[Any], Any]]:
    """A space's spec in single precision, and the function that makes an action, or a batch of them, fit the space."""
    spec, start = _leaf(space, "action")
    if isinstance(space, spaces.Discrete) and not batched:
        offset = int(space.start)
        return spec, (lambda action: int(action) + offset) if offset else int
    dtype = space.dtype
    if start is None:
        return spec, lambda action: np.asarray(action, dtype)
    return spec, lambda action: np.asarray(action, dtype) + start


def _leaf(space: spaces.Space, name: str) -> tuple[specs.Array, np.ndarray | None]:
    """The spec of a space of one array, and what its values start at where that isn't zero."""
    if isinstance(space, spaces.Box):
        return single_spec(specs.BoundedArray(space.shape, space.dtype, space.low, space.high, name)), None
    if isinstance(space, spaces.Discrete):
        return specs.DiscreteArray(int(space.n), np.int32, name), np.asarray(space.start) if space.start else None
    if isinstance(space, spaces.MultiDiscrete):
        start = space.start if np.any(space.start) else None
        return specs.BoundedArray(space.shape, np.int32, 0, space.nvec - 1, name), start
    if isinstance(space, spaces.MultiBinary):
        return specs.BoundedArray(space.shape, np.int32, 0, 1, name), None
    kind = type(space).__name__
    raise UsageError(
        f"the {name} space {kind} is not supported; Box, Discrete, MultiDiscrete and MultiBinary are, "
        "and for observations Dict and Tuple of these."
    )
