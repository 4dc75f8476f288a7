"""Gymnasium's environments as dm_env, single or natively batched.

Box, Discrete, MultiDiscrete and MultiBinary spaces are supported, and for observations also Dict and Tuple of these. In
observations, Discrete and MultiDiscrete numbers are one-hot, and images have their channels last. Gymnasium's checkers
and its time-limit wrapper are not used; this module applies the time limit, which is a truncation.
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
from acme_ext.envs.backend import Backend, Limit
from acme_ext.envs.specs import channels_first, one_hot, single_spec
from acme_ext.errors import RunError, UsageError
from acme_ext.specs import ACTION_MASK, PICTURE_SIDE, RULES
from acme_ext.types import FIRST, MID, Tree

# Vector environments that were checked to reset a row in the step after its end, and to distinguish truncations from
# terminations. Others may not: phys2d's set the running rows back by a step whenever another row is reset.
_NATIVE = ("gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",)

_registered: dict[str, set[str]] = {}  # the ids that the import of each module registered

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Gym(Backend):
    """`gym:NAME` for an id of gymnasium, or `gym:MODULE:NAME` for an id that a module registers when imported."""

    types = {"max_episode_steps": Limit}

    def names(self) -> Collection[str]:
        # Atari is a separate family.
        return [name for name, spec in gymnasium.registry.items() if not str(spec.entry_point).startswith("ale_py")]

    def canonical(self, name: str) -> str:
        if name.startswith("ALE/"):
            raise UsageError(f"'gym:{name}' is not available; use the family atari, as in 'atari:Pong'.")
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
        """Returns the parameters of the environment's constructor, and `max_episode_steps`."""
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
        # Disable the wrappers that only check, and the time limit, which `GymEnvironment` applies.
        spec.max_episode_steps, spec.order_enforce, spec.disable_env_checker = None, False, True
        with _user_errors(name):
            environment = gymnasium.make(spec, **options)
        return GymEnvironment(environment, seed=seed, max_episode_steps=limit)

    def load_batch(
        self, name: str, num_envs: int, seed: int, evaluation: bool, **options: Any
    ) -> base.BatchedEnvironment | None:
        """Makes gymnasium's own vectorised implementation, if it is in `_NATIVE`; otherwise returns None."""
        if num_envs == 1 or gymnasium.registry[name].vector_entry_point not in _NATIVE:
            return None
        if options.get("max_episode_steps", 1) is None:  # the vectorised ones can't do without
            return None
        with _user_errors(name):
            environments = gymnasium.make_vec(name, num_envs, vectorization_mode="vector_entry_point", **options)
        return GymVectorEnvironment(environments, seed=seed)


@contextlib.contextmanager
def _user_errors(name: str) -> Iterator[None]:
    """Converts gymnasium's errors, and missing dependencies, to a UsageError."""
    try:
        yield
    except (gymnasium.error.Error, ImportError) as error:
        raise UsageError(f"gymnasium can't make {name!r}: {str(error).rstrip('.')}.") from error


class GymEnvironment(base.StatedSpecs, base.SingleEnvironment):
    """Wraps a gymnasium environment as a dm_env in single precision, with a time limit in steps that truncates."""

    def __init__(self, environment: gymnasium.Env, *, seed: int | None = None, max_episode_steps: int | None = None):
        self.environment = environment
        self._observation_spec, self._observe = _observations(environment.observation_space)
        self._action_spec, self._act = _actions(environment.action_space)
        self._seed = seed  # used for the first reset only; later episodes continue the same random stream
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
        if isinstance(reward, int | float | np.number | np.ndarray):  # a later check reports anything else
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
        """Converts an observation to its spec; returns it unchanged if that fails, and a later check reports it."""
        try:
            return self._observe(observation)
        except (LookupError, TypeError, ValueError):
            return observation

    @property
    def render_fps(self) -> float | None:
        """Frames per second, from the environment's metadata."""
        return self.environment.metadata.get("render_fps")

    def render(self) -> np.ndarray:
        """Renders an image, uint8 `[H, W, 3]`; raises UsageError if the environment can't be rendered."""
        drawn: Any = self.environment.unwrapped
        if "rgb_array" not in drawn.metadata.get("render_modes", ()):
            raise UsageError(f"{type(drawn).__name__} of gymnasium draws no images (render mode 'rgb_array').")
        if drawn.render_mode is None:  # environments are made without a render mode, because training doesn't render
            drawn.render_mode = "rgb_array"
        with _user_errors(type(drawn).__name__):
            return np.asarray(drawn.render())

    def close(self) -> None:
        self.environment.close()


class GymVectorEnvironment(base.StatedSpecs, base.BatchedEnvironment):
    """Wraps a gymnasium `VectorEnv` that resets a row in the step after its end.

    All rows share one random stream: a seed determines the whole batch, and a row's episodes depend on the other rows.
    """

    def __init__(self, environments: gymnasium.vector.VectorEnv, *, seed: int | None = None):
        mode = environments.metadata.get("autoreset_mode")
        if mode is not gymnasium.vector.AutoresetMode.NEXT_STEP:
            raise ValueError(f"a vectorised environment must reset with NEXT_STEP, not {mode}.")
        self.vector = environments
        self.num_envs = environments.num_envs
        self._observation_spec, self._observe = _observations(environments.single_observation_space)
        self._action_spec, self._act = _actions(environments.single_action_space, batched=True)
        self._seed = seed
        self._ended = np.zeros(self.num_envs, bool)

    def reset(self) -> dm_env.TimeStep:
        observation, _ = self.vector.reset(seed=self._seed)
        self._seed = None
        n = self.num_envs
        self._ended = np.zeros(n, bool)
        return self.checked(
            dm_env.TimeStep(
                np.zeros(n, np.uint8), np.zeros(n, np.float32), np.ones(n, np.float32), self._observe(observation)
            )
        )

    def step(self, actions: Any) -> dm_env.TimeStep:
        observation, reward, terminated, truncated, _ = self.vector.step(self._act(actions))
        began, self._ended = self._ended, terminated | truncated
        step_type = self._ended + np.uint8(MID)
        step_type[began] = FIRST
        reward = reward.astype(np.float32)
        reward[began] = 0.0
        discount = 1.0 - terminated.astype(np.float32)
        return self.checked(dm_env.TimeStep(step_type, reward, discount, self._observe(observation)))

    def close(self) -> None:
        self.vector.close()


def _observations(
    space: spaces.Space, name: str = "observation", *, whole: bool = True
) -> tuple[Tree, Callable[[Any], Tree]]:
    """Returns a space's spec in single precision, and a function that converts observations, or batches, to it.

    Args:
        space: the space.
        name: the field's name.
        whole: whether this is the space of whole observations. If it has a mask, its fields of the rules stay numbers.
    """
    if isinstance(space, spaces.Dict):
        raw = RULES if whole and ACTION_MASK in space.spaces else ()
        parts = {
            key: _numbers(value, key) if key in raw else _observations(value, key, whole=False)
            for key, value in space.items()
        }
        converters = [(key, convert) for key, (_, convert) in parts.items()]
        spec = {key: spec for key, (spec, _) in parts.items()}
        return spec, lambda value: {key: convert(value[key]) for key, convert in converters}
    if isinstance(space, spaces.Tuple):
        pairs = [_observations(value, f"{name}_{i}", whole=False) for i, value in enumerate(space)]
        functions = [convert for _, convert in pairs]
        return tuple(spec for spec, _ in pairs), lambda value: tuple(
            f(v) for f, v in zip(functions, value, strict=True)
        )
    if isinstance(space, spaces.Discrete):
        spec, convert = one_hot(name, [space.n], [space.start])
        return spec, lambda value: convert(np.asarray(value)[..., None])
    if isinstance(space, spaces.MultiDiscrete):
        spec, convert = one_hot(name, space.nvec.ravel().tolist(), space.start.ravel().tolist())
        return spec, lambda value: convert(np.asarray(value).reshape(*np.shape(value)[: -space.nvec.ndim], -1))
    spec, numbers = _numbers(space, name)
    if isinstance(spec, specs.BoundedArray) and spec.dtype == np.uint8:
        # For a small grid with many channels, the shape doesn't show which axis has the channels.
        if channels_first(spec.shape) and min(spec.shape[1:]) >= PICTURE_SIDE:
            return _moved(spec, lambda value: np.moveaxis(numbers(value), -3, -1))
        if len(spec.shape) == 2 and min(spec.shape) >= PICTURE_SIDE:
            return _moved(spec, lambda value: numbers(value)[..., None])
    return spec, numbers


def _numbers(space: spaces.Space, name: str) -> tuple[specs.Array, Callable[[Any], np.ndarray]]:
    """Returns the spec of a space's numbers in single precision, and a function that converts them, or batches."""
    spec, start = _leaf(space, name)
    dtype = spec.dtype
    if start is not None:
        return spec, lambda value: np.asarray(value - start, dtype)
    if dtype.kind == "f":
        return spec, lambda value: np.asarray(value, dtype)

    def whole(value: Any) -> np.ndarray:
        value = np.asarray(value)
        if value.dtype.kind == "f":
            raise RunError(f"the observation {name!r} has the type {value.dtype}; its space says {dtype}.")
        return value.astype(dtype, copy=False)

    return spec, whole


def _moved(spec: specs.BoundedArray, convert: Callable[[Any], np.ndarray]) -> tuple[specs.Array, Callable]:
    """Returns the spec `[H, W, C]` of an image whose channels are on another axis, and the function that moves them."""
    low, high = (convert(np.broadcast_to(bound, spec.shape)) for bound in (spec.minimum, spec.maximum))
    return specs.BoundedArray(low.shape, spec.dtype, low, high, spec.name), convert


def _actions(space: spaces.Space, batched: bool = False) -> tuple[specs.Array, Callable[[Any], Any]]:
    """Returns a space's spec in single precision, and a function that converts actions, or batches, to the space."""
    spec, start = _leaf(space, "action")
    if isinstance(space, spaces.Discrete) and not batched:
        offset = int(space.start)
        return spec, (lambda action: int(action) + offset) if offset else int
    dtype = space.dtype
    if start is None:
        return spec, lambda action: np.asarray(action, dtype)
    return spec, lambda action: np.asarray(action, dtype) + start


def _leaf(space: spaces.Space, name: str) -> tuple[specs.Array, np.ndarray | None]:
    """Returns the spec of a space of one array, and the lowest values of a discrete space if they are not zero."""
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
