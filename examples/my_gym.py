"""A custom Gymnasium environment, with a wrapper and a mask of legal actions."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Corridor(gymnasium.Env):
    """A row of places with a reward of 1 at the right end. At the left end only moving right is legal."""

    def __init__(self, length: int):
        self.action_space = spaces.Discrete(2)  # left, right
        place = spaces.Box(0.0, 1.0, (length,), np.float32)
        self.observation_space = spaces.Dict({"place": place, "action_mask": spaces.MultiBinary(2)})
        self._length, self._place = length, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place = 0
        return self._observe(), {}

    def step(self, action):
        assert self._observe()["action_mask"][action], "an action that is not legal was taken"
        self._place += 1 if action == 1 else -1
        end = self._place == self._length - 1
        return self._observe(), float(end), end, False, {}

    def _observe(self):
        mask = np.array([self._place > 0, True], np.int8)
        return {"place": np.eye(self._length, dtype=np.float32)[self._place], "action_mask": mask}


def make(length=8, cost=0.01):
    """Makes a corridor in which a step costs something; `--env-set length=12` makes a longer one."""
    return gymnasium.wrappers.TransformReward(Corridor(length), lambda reward: reward - cost)


gymnasium.register("Corridor-v0", entry_point=make, max_episode_steps=100)
