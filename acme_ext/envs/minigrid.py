"""MiniGrid's grid worlds, with images or one-hot grids as observations. The mission's text is not included."""

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

import dm_env
import gymnasium
import numpy as np

from acme_ext.envs.backend import Backend, Limit
from acme_ext.envs.gym import GymEnvironment

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # pygame, which minigrid imports, would print it

with contextlib.suppress(ImportError), warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")  # pygame imports it
    import minigrid  # noqa: F401  (registers the environments)

_PREFIX, _SUFFIX = "MiniGrid-", "-v0"
_VERSION = re.compile(r"-v\d+$")
_CHANNELS = (
    11,
    6,
    4,
)  # kinds of objects, colours, and states: a door's 3, or on the whole map the agent's 4 directions
_TILE = 8  # pixels of a cell in a picture


class MiniGrid(Backend):
    """`minigrid:NAME`, where `DoorKey-8x8` stands for `MiniGrid-DoorKey-8x8-v0`; other versions are named."""

    types = {"view": Literal["grid", "picture", "whole"], "max_steps": Limit}

    def names(self) -> Collection[str]:
        return [name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in gymnasium.registry if _is_ours(name)]

    def canonical(self, name: str) -> str:
        return name.removeprefix(_PREFIX).removesuffix(_SUFFIX)

    def options(self, name: str) -> Mapping[str, Any]:
        """Returns the options, see `load`; with None for `max_steps`, each task has its own limit."""
        return {"view": "grid", "fixed_map": False, "max_steps": None}

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        """Returns one environment.

        Args:
            name: the name without MiniGrid's prefix, and without the version if it is 0.
            seed: seed of the maps.
            evaluation: has no effect.
            **options: `view`, `fixed_map` (every episode of every environment has the map of seed 0) and `max_steps`.
        """
        view, fixed, limit = ({**self.options(name), **options}[key] for key in ("view", "fixed_map", "max_steps"))
        version = "" if _VERSION.search(name) else _SUFFIX
        made = gymnasium.spec(f"{_PREFIX}{name}{version}").make(
            disable_env_checker=True, **({} if limit is None else {"max_steps": limit})
        )
        return GymEnvironment(_Seen(made.unwrapped, view, fixed), seed=seed)


def _is_ours(name: str) -> bool:
    return name.startswith(_PREFIX) and _VERSION.search(name) is not None


class _Seen(gymnasium.Wrapper):
    """Wraps a MiniGrid environment to have an array as observation.

    Args:
        environment: the MiniGrid environment, without wrappers.
        view: `grid`, the agent's view, one-hot bool `[7, 7, 21]`; `picture`, the same view as an image, uint8 `[56,
            56, 3]`; or `whole`, the whole map with the agent, one-hot bool `[H, W, 21]`.
        fixed_map: whether every episode has the map of seed 0.
    """

    def __init__(self, environment: Any, view: str, fixed_map: bool):
        super().__init__(environment)
        self._view, self._fixed = view, fixed_map
        self._observe: Callable[[Any], np.ndarray] = getattr(self, f"_{view}")
        example = self._observe(environment.reset(seed=0)[0])
        high = 255 if example.dtype == np.uint8 else 1
        self.observation_space = gymnasium.spaces.Box(0, high, example.shape, example.dtype.type)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        observation, info = self.env.reset(seed=0 if self._fixed else seed, options=options)
        return self._observe(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._observe(observation), reward, terminated, truncated, info

    @staticmethod
    def _grid(observation: Any) -> np.ndarray:
        return _one_hot(observation["image"])

    def _whole(self, observation: Any) -> np.ndarray:
        inner: Any = self.unwrapped
        codes = inner.grid.encode()
        codes[inner.agent_pos[0], inner.agent_pos[1]] = (10, 0, inner.agent_dir)  # 10 is the agent
        return _one_hot(codes)

    def _picture(self, observation: Any) -> np.ndarray:
        inner: Any = self.unwrapped
        return inner.get_frame(tile_size=_TILE, agent_pov=True)


_EYES = tuple(np.eye(size, dtype=np.bool_) for size in _CHANNELS)


def _one_hot(codes: np.ndarray) -> np.ndarray:
    """Converts MiniGrid's codes `[H, W, 3]` (object, colour, state) to one-hot `[H, W, 21]` bool."""
    return np.concatenate([eye[codes[..., i]] for i, eye in enumerate(_EYES)], axis=-1)
