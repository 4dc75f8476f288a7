"""A sum tree: draws places in proportion to their weights (Schaul et al. 2016, appendix B.2.1)."""

import numpy as np

_TOP = 1024  # nodes of the level that is searched at once


class SumTree:
    """Non-negative weights of places 0 .. size - 1, and sums of them in a binary tree.

    The sums are a function of the weights alone: it doesn't matter in which order the weights were set.

    Args:
        size: number of places; all weights are 0 at first.
    """

    def __init__(self, size: int):
        depth = max(1, (size - 1).bit_length())
        self._nodes = np.zeros(2 << depth)  # node i has the children 2 i and 2 i + 1; the leaves come last
        self._leaves = 1 << depth
        self._top = min(self._leaves, _TOP)  # index of the first node of the level that is searched at once

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._nodes[1])

    def __getitem__(self, places: np.ndarray | slice) -> np.ndarray:
        """Returns the weights of places."""
        return self._nodes[self._leaves :][places]

    def set(self, places: np.ndarray, weights: np.ndarray) -> None:
        """Sets the weights `[M]` of places `[M]`; if a place occurs twice, the later weight counts."""
        nodes = self._nodes
        index = np.asarray(places, np.int64) + self._leaves
        nodes[index] = weights
        level = self._leaves
        while level > self._top:
            level >>= 1
            index >>= 1
            left = index << 1
            nodes[index] = nodes[left] + nodes[left + 1]
        while level > 1:
            lower = nodes[level : 2 * level]
            level >>= 1
            np.add(lower[::2], lower[1::2], out=nodes[level : 2 * level])

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draws `count` places with replacement; at least one weight must be positive. int64 `[count]`."""
        nodes, top = self._nodes, self._nodes[self._top : 2 * self._top]
        ends = np.cumsum(top)
        rest = rng.random(count) * ends[-1]
        chosen = np.minimum(np.searchsorted(ends, rest, side="right"), len(ends) - 1)
        rest -= ends[chosen] - top[chosen]
        index, level = chosen + self._top, self._top
        while level < self._leaves:
            index <<= 1
            left = nodes[index]
            right = rest >= left
            rest -= left * right
            index += right
            level <<= 1
        # Rounding may lead to a place without a weight.
        missed = np.flatnonzero(nodes[index] == 0)
        if len(missed):
            index[missed] = self.draw(rng, len(missed)) + self._leaves
        return index - self._leaves
