"""EnvPool's environments, which are batched natively in C++ threads.

EnvPool resets a row in the step after its end, as dm_env requires. At a time limit it also gives discount 0, but marks
the row as truncated; here, the discount of such rows is 1. An episode that terminates in the same step as its time
limit counts as truncated, except in Atari, where EnvPool reports both.
"""

import contextlib
import importlib
import math
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from acme_ext.envs import base
from acme_ext.envs.backend import Backend
from acme_ext.envs.single import Unbatched
from acme_ext.envs.specs import channels_first, one_hot, single_spec
from acme_ext.errors import UsageError
from acme_ext.specs import StackedFrames
from acme_ext.types import FIRST, Tree


def _import_envpool() -> ModuleType:
    """Imports EnvPool without the message that gym, which EnvPool imports, is no longer maintained."""
    with contextlib.suppress(ImportError):
        from gym_notices import notices

        notices.notices.clear()
    return importlib.import_module("envpool")


envpool: Any = _import_envpool()

_MANY = 2**12  # integers with this many values or more are not made one-hot

_OURS = {"num_envs", "batch_size", "seed", "max_num_players", "base_path", "gym_reset_return_info", "reward_threshold"}


class EnvPool(Backend):
    """`envpool:NAME`."""

    def names(self) -> Collection[str]:
        # ViZDoom's environments are excluded: their actions are unbounded floats, one for each button.
        return [name for name, (module, *_) in envpool.registration.registry.specs.items() if "vizdoom" not in module]

    def options(self, name: str) -> Mapping[str, Any]:
        """Returns the fields of EnvPool's config, and `flatten`; in Atari training, losing a life gives discount 0."""
        config = envpool.make_spec(name).config._asdict()
        defaults = {key: value for key, value in config.items() if key not in _OURS}
        if "zero_discount_on_life_loss" in defaults:
            defaults["zero_discount_on_life_loss"] = True
        return {**defaults, "flatten": True}

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        return Unbatched(self.load_batch(name, 1, seed, evaluation, **options))

    def load_batch(self, name: str, num_envs: int, seed: int, evaluation: bool, **options: Any) -> "EnvPoolEnvironment":
        flatten = options.pop("flatten", True)
        if "zero_discount_on_life_loss" in envpool.make_spec(name).config._fields:
            if evaluation:  # full games with unclipped rewards
                options.update(zero_discount_on_life_loss=False, episodic_life=False, reward_clip=False)
            else:
                options.setdefault("zero_discount_on_life_loss", True)
        pool = envpool.make_dm(name, num_envs=num_envs, batch_size=num_envs, seed=seed, **options)
        return EnvPoolEnvironment(pool, flatten=flatten)


class EnvPoolEnvironment(base.StatedSpecs, base.BatchedEnvironment):
    """A synchronous pool made by `envpool.make_dm`.

    As in the other families, images (uint8 with three dimensions) have their channels last, and integers are one-hot.
    With `flatten`, a dictionary of floats becomes one vector, in EnvPool's order. EnvPool's `info` is not part of the
    observation.
    """

    def __init__(self, pool: Any, *, flatten: bool = True):
        self._pool: Any = pool
        self.num_envs = len(pool)
        self._keys = list(pool._state_keys)  # the public `recv` doesn't return which rows were truncated
        stated = {key: spec for key, spec in pool.spec.state_array_spec.items() if key.split(":")[0] == "obs"}
        config = pool.spec.config
        depth = config.stack_num if getattr(config, "gray_scale", False) else None
        made = {key: _observation(key.removeprefix("obs:"), spec, depth) for key, spec in stated.items()}
        leaves = [spec for spec, _ in made.values()]
        self._parts = {key: (spec.name, convert) for key, (spec, convert) in made.items()}
        shapes = [spec.shape for spec in leaves]
        floats = all(spec.dtype == np.float32 for spec in leaves)
        self._flat = flatten and floats and len(shapes) > 1
        if self._flat:
            self._observation_spec = specs.Array((int(sum(map(np.prod, shapes))),), np.float32, "observation")
        elif len(leaves) == 1:
            (self._observation_spec,) = leaves
        else:
            self._observation_spec = {spec.name: spec for spec in leaves}
        action = pool.action_spec()
        if not isinstance(action, specs.Array):
            raise UsageError(
                f"an environment of EnvPool with several actions ({', '.join(action._fields)}) is not supported."
            )
        self._action_spec = single_spec(action)

    def reset(self) -> dm_env.TimeStep:
        self._pool.async_reset()
        return self._receive()

    def step(self, actions: Any) -> dm_env.TimeStep:
        self._pool.send(np.asarray(actions))
        return self._receive()

    def _receive(self) -> dm_env.TimeStep:
        state = dict(zip(self._keys, self._pool._recv(), strict=True))
        step_type = state["step_type"].astype(np.uint8)
        reward = state["reward"].astype(np.float32)
        reward[step_type == FIRST] = 0.0
        discount = state["discount"].astype(np.float32)
        truncated = state["trunc"]
        if "info:terminated" in state:
            truncated = truncated & (state["info:terminated"] == 0)
        discount[truncated] = 1.0
        return self.checked(dm_env.TimeStep(step_type, reward, discount, self._observe(state)))

    def _observe(self, state: Mapping[str, np.ndarray]) -> Tree:
        if self._flat:
            return np.concatenate(
                [np.asarray(state[key], np.float32).reshape(self.num_envs, -1) for key in self._parts], axis=1
            )
        values = {name: convert(state[key]) for key, (name, convert) in self._parts.items()}
        return next(iter(values.values())) if len(values) == 1 else values

    def close(self) -> None:
        self._pool = None  # it has no close method; its threads end when it is deleted


def _observation(name: str, stated: Any, depth: int | None) -> tuple[specs.Array, Callable[[np.ndarray], np.ndarray]]:
    """Returns the spec of one array of EnvPool's observations, and a function that converts EnvPool's batches to it.

    Grey images are stacks of `depth` frames. Bounds of floats are ignored, because EnvPool states the smallest positive
    number if there is no lower bound.
    """
    shape = tuple(n for n in stated.shape if n != -1)
    dtype = np.dtype(stated.dtype)
    if dtype == np.int32 and not shape[1:] and np.all(np.equal(stated.minimum, 0)) and stated.maximum < _MANY:
        # EnvPool states the same bounds for all numbers.
        spec, convert = one_hot(name, [int(stated.maximum) + 1] * math.prod(shape))
        return spec, lambda values: convert(values.reshape(len(values), -1))
    if dtype == np.uint8 and channels_first(shape):
        shape = (*shape[1:], shape[0])
        kind = StackedFrames if shape[-1] == depth else specs.BoundedArray
        return kind(shape, dtype, stated.minimum, stated.maximum, name), _picture
    if np.issubdtype(dtype, np.floating):
        spec = single_spec(specs.Array(shape, dtype, name))
    else:
        spec = single_spec(specs.BoundedArray(shape, dtype, stated.minimum, stated.maximum, name))
    return spec, lambda values: np.asarray(values, spec.dtype)


def _picture(values: np.ndarray) -> np.ndarray:
    """Returns images `[B, C, H, W]` with their channels last."""
    batch, channels, height, width = values.shape
    pictures = np.empty((batch, height, width, channels), np.uint8)
    for channel in range(channels):  # three times as fast as a transposed copy
        pictures[..., channel] = values[:, channel]
    return pictures
