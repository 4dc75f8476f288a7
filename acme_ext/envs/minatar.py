"""MinAtar's games: small binary images, with one channel for each kind of object.

MinAtar's package imports seaborn and pandas for drawing. This module loads only the games, from their files, and adds
the sticky actions of MinAtar's own wrapper (Young & Tian 2019).
"""

import functools
import importlib.util
from collections.abc import Collection, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from acme_ext.config.types import PositiveInt, Share
from acme_ext.envs.backend import Backend
from acme_ext.envs.base import LimitedEnvironment

# Colours of the background and the channels: Okabe and Ito's, which colour-blind people can distinguish, and others.
_COLOURS = np.array(
    [
        *((0, 0, 0), (86, 180, 233), (230, 159, 0), (0, 158, 115), (240, 228, 66), (213, 94, 0), (204, 121, 167)),
        *((0, 114, 178), (255, 255, 255), (150, 150, 150), (160, 100, 50), (120, 220, 120)),
    ],
    np.uint8,
)


class MinAtar(Backend):
    """`minatar:NAME`."""

    types = {"sticky_action_prob": Share, "max_steps": PositiveInt}

    def names(self) -> Collection[str]:
        return sorted(path.stem for path in _folder().glob("*.py") if path.stem != "__init__")

    def options(self, name: str) -> Mapping[str, Any]:
        return {
            "sticky_action_prob": 0.1,
            "difficulty_ramping": True,
            "minimal_action_set": False,
            "max_steps": 10_000,
        }

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        return MinAtarEnvironment(name, seed=seed, **options)


def _folder() -> Path:
    """Returns the folder of the games' modules, without importing the package."""
    package = importlib.util.find_spec("minatar")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("minatar is not installed.")
    return Path(package.origin).parent / "environments"


@functools.cache
def _game(name: str) -> ModuleType:
    module = ModuleType(f"{__name__}.{name}")
    SourceFileLoader(module.__name__, str(_folder() / f"{name}.py")).exec_module(module)
    return module


class MinAtarEnvironment(LimitedEnvironment):
    """A MinAtar game; observations are bool [10, 10, C]."""

    def __init__(
        self,
        game: str,
        *,
        seed: int,
        sticky_action_prob: float = 0.1,
        difficulty_ramping: bool = True,
        minimal_action_set: bool = False,
        max_steps: int = 10_000,
    ):
        """Makes a game.

        Args:
          game: the game's name in MinAtar.
          seed: seed of the game and of the sticky actions.
          sticky_action_prob: probability of repeating the previous action.
          difficulty_ramping: whether the game gets harder over time, for games that support this.
          minimal_action_set: use only the actions that have an effect in this game, and not all 6.
          max_steps: steps after which an episode is truncated. MinAtar's games have no limit of their own, except
            Freeway, which terminates after 2,500 steps.
        """
        super().__init__(max_steps)
        self._game = _game(game).Env(ramping=difficulty_ramping)
        self._rng = self._game.random = np.random.RandomState(seed)
        self._actions = self._game.minimal_action_set() if minimal_action_set else list(range(6))
        self._sticky = sticky_action_prob
        self._last_action = 0
        self._observation_spec = specs.BoundedArray(self._game.state_shape(), np.bool_, False, True, "observation")
        self._action_spec = specs.DiscreteArray(len(self._actions), np.int32, "action")

    def _observe(self) -> np.ndarray:
        return self._game.state().astype(np.bool_)

    def _begin(self) -> None:
        self._game.reset()
        self._last_action = 0

    def _move(self, action: int) -> tuple[float, bool]:
        if self._sticky == 0.0 or self._rng.random_sample() >= self._sticky:
            self._last_action = self._actions[action]
        return self._game.act(self._last_action)

    def render(self) -> np.ndarray:
        """Renders an image with a colour for each channel, uint8 [10, 10, 3]; later channels cover earlier ones."""
        state = self._game.state()
        topmost = np.where(state.any(axis=-1), state.shape[-1] - np.argmax(state[..., ::-1], axis=-1), 0)
        return _COLOURS[topmost]
