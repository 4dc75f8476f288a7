"""Atari 2600 games with the preprocessing of the Nature DQN, directly on the Arcade Learning Environment.

As in Mnih et al. (2015), Methods and extended data table 1, every action is repeated for 4 frames. The maximum of the
last two frames is taken to remove flicker, converted to grey and resized to 84x84, and the last 4 such images are
stacked. An episode begins with up to 30 no-ops. There are three differences: as in Dopamine, grey values come from
ALE's palette before the maximum, and images are resized by area; as in Acme, the images before an episode's first are
blank. Rewards are not clipped; agents can do that.
"""

from collections.abc import Collection, Mapping
from typing import Any

import ale_py
import cv2
import dm_env
import numpy as np
from ale_py import roms
from dm_env import specs

from acme_ext.config.types import NonNegativeInt, Share
from acme_ext.envs.backend import Backend
from acme_ext.envs.base import SingleEnvironment, StatedSpecs
from acme_ext.errors import UsageError
from acme_ext.specs import StackedFrames

_FRAME_SKIP = 4  # frames an action is repeated for
_SIZE = 84  # pixels of a side
_STACK = 4  # pictures in an observation, oldest first
_NEWEST = np.dtype("<u4").itemsize - 1

_MULTIPLAYER = {"combat", "joust", "maze_craze", "warlords"}  # They have no mode for one player.

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Atari(Backend):
    """`atari:NAME`: one of the games shipped with ale-py, named as in `Pong` or `SpaceInvaders`."""

    types = {"sticky_actions": Share, "noop_max": NonNegativeInt}

    def __init__(self) -> None:
        # Read from ale-py, which ships the cartridges; the ids are in snake case.
        self._games = {
            game.title().replace("_", ""): game for game in sorted(roms.get_all_rom_ids()) if game not in _MULTIPLAYER
        }

    def names(self) -> Collection[str]:
        return self._games

    def options(self, name: str) -> Mapping[str, Any]:
        return {
            "life_loss": True,
            "sticky_actions": 0.0,
            "full_action_set": False,
            "noop_max": 30,
            "max_frames": 108_000,
        }

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        if evaluation:
            options["life_loss"] = False
        return AtariEnvironment(self._games[name], seed=seed, **options)


class AtariEnvironment(StatedSpecs, SingleEnvironment):
    """An Atari game; observations are uint8 [84, 84, 4] with the newest image last.

    With `life_loss`, a step that loses a life gets discount 0, but the episode continues. As in the code of the Nature
    paper, the loss of a life is a termination for the targets, but the game is not reset.
    """

    def __init__(
        self,
        game: str,
        *,
        seed: int,
        life_loss: bool = True,
        sticky_actions: float = 0.0,
        full_action_set: bool = False,
        noop_max: int = 30,
        max_frames: int = 108_000,
    ):
        """Makes a game.

        Args:
          game: ALE's id, in snake case.
          seed: seed of the emulator and of the no-ops, in [0, 2**31).
          life_loss: whether losing a life gives discount 0.
          sticky_actions: probability of repeating the previous action in a frame; 0.25 in Machado et al. (2018).
          full_action_set: use all 18 actions, and not only those that have an effect in this game.
          noop_max: an episode begins with a uniformly random number of no-op frames from 1 to this; 0 for none.
          max_frames: emulator frames after which an episode is truncated; 108,000 are half an hour.
        """
        if max_frames <= noop_max:
            raise UsageError(f"max_frames is {max_frames}: it must be more than noop_max, which is {noop_max}.")
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        ale = ale_py.ALEInterface()
        ale.setInt("random_seed", seed)
        ale.setFloat("repeat_action_probability", sticky_actions)
        path = roms.get_rom_path(game)
        if path is None:
            raise UsageError(f"ale-py ships no game {game!r}.")
        ale.loadROM(path)
        self.ale = ale
        self._actions = ale.getLegalActionSet() if full_action_set else ale.getMinimalActionSet()
        self._observation_spec = StackedFrames((_SIZE, _SIZE, _STACK), np.uint8, 0, 255, "observation")
        self._action_spec = specs.DiscreteArray(len(self._actions), np.int32, "action")
        self._rng = np.random.default_rng(seed)
        self._life_loss = life_loss
        self._noop_max = noop_max
        self._max_frames = max_frames
        self._screens = np.zeros((2, *ale.getScreenDims()), np.uint8)
        self._picture = np.zeros((_SIZE, _SIZE), np.uint8)
        # A pixel's stack is four bytes, one little-endian word. Shifting it by a byte drops the oldest image.
        self._words = np.zeros((_SIZE, _SIZE), "<u4")
        self._stack = self._words.view(np.uint8).reshape(_SIZE, _SIZE, _STACK)
        self._lives = 0
        self._ended = True

    def reset(self) -> dm_env.TimeStep:
        ale = self.ale
        ale.reset_game()
        for _ in range(self._rng.integers(1, self._noop_max + 1) if self._noop_max else 0):
            ale.act(ale_py.Action.NOOP)
            if ale.game_over(with_truncation=False):
                ale.reset_game()
        self._lives = ale.lives()
        self._ended = False
        ale.getScreenGrayscale(self._screens[0])
        self._words.fill(0)
        return dm_env.restart(self._observe(self._screens[0]))

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._ended:
            return self.reset()
        ale, act, screens = self.ale, self.ale.act, self._screens
        button = self._actions[int(action)]
        # After the end of a game, ALE ignores actions and gives no rewards, so it may end within the four frames.
        reward = act(button) + act(button) + act(button)
        ale.getScreenGrayscale(screens[0])
        reward += act(button)
        ale.getScreenGrayscale(screens[1])
        observation = self._observe(np.maximum(screens[0], screens[1], out=screens[0]))

        lives, discount = ale.lives(), _ONE
        if ale.game_over(with_truncation=False) or (self._life_loss and lives < self._lives):
            discount = _ZERO
        self._lives = lives
        self._ended = ale.game_over(with_truncation=False) or ale.getEpisodeFrameNumber() >= self._max_frames
        kind = dm_env.StepType.LAST if self._ended else dm_env.StepType.MID
        return dm_env.TimeStep(kind, np.float32(reward), discount, observation)

    render_fps = 60 / _FRAME_SKIP
    """Steps per second at the console's speed."""

    def render(self) -> np.ndarray:
        """Returns the screen in colour, uint8 [210, 160, 3] in most games."""
        return self.ale.getScreenRGB()

    def _observe(self, screen: np.ndarray) -> np.ndarray:
        """Adds a grey screen to the stack; returns a copy of the stack as the observation."""
        cv2.resize(screen, (_SIZE, _SIZE), dst=self._picture, interpolation=cv2.INTER_AREA)
        np.right_shift(self._words, 8, out=self._words)
        self._stack[..., _NEWEST] = self._picture
        return self._stack.copy()
