"""A custom environment: a maze with its only reward at the opposite corner."""

import dm_env
import numpy as np
from dm_env import specs

MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])


class Maze(dm_env.Environment):
    """A square of rooms. Every other column is a wall with one door; the goal is in the opposite corner.

    The observation is the room, one-hot. Reaching the goal is worth 1 and ends the episode; so does time, as a
    truncation.
    """

    def __init__(self, size: int):
        self._size, self._limit = size, 8 * size
        self._walls = np.zeros((size, size), bool)
        for number, column in enumerate(range(1, size - 1, 2)):
            self._walls[:, column] = True
            self._walls[0 if number % 2 else -1, column] = False
        self._place, self._time = np.zeros(2, int), 0

    def reset(self):
        self._place, self._time = np.zeros(2, int), 0
        return dm_env.restart(self._observe())

    def step(self, action):
        self._time += 1
        ahead = np.clip(self._place + MOVES[action], 0, self._size - 1)
        if not self._walls[tuple(ahead)]:
            self._place = ahead
        if (self._place == self._size - 1).all():
            return dm_env.termination(1.0, self._observe())
        return (dm_env.truncation if self._time == self._limit else dm_env.transition)(0.0, self._observe())

    def observation_spec(self):
        return specs.Array((self._size**2,), np.float32)

    def action_spec(self):
        return specs.DiscreteArray(len(MOVES))

    def _observe(self):
        return np.eye(self._size**2, dtype=np.float32)[self._place @ (self._size, 1)]


def make_maze(seed, evaluation, size=4):
    """Makes a maze; `--env-set size=7` makes a larger one."""
    return Maze(size)
