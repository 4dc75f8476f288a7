"""Random experience of environments that step together, and the plain way to make n-step transitions of it."""

from typing import Any, NamedTuple

import dm_env
import numpy as np
from dm_env import specs
from hypothesis import strategies as st

from acme_ext.interfaces import EnvironmentSpec
from acme_ext.types import Transition

FIRST, MID, LAST = (int(kind) for kind in (dm_env.StepType.FIRST, dm_env.StepType.MID, dm_env.StepType.LAST))

SPEC = EnvironmentSpec(
    observations={"image": specs.Array((2, 2), np.uint8), "place": specs.Array((2,), np.float32)},
    actions=specs.DiscreteArray(1000, np.int32),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
)
"""Observations tell which environment and which tick they are of, so that no two are equal."""


class Item(NamedTuple):
    """One transition, by the ticks it spans."""

    env: int
    start: int
    end: int
    action: int
    reward: float
    discount: float


class Timeline:
    """B environments over T + 1 ticks, from one call of `add_first` on.

    `kinds [T + 1, B]` tells how each tick came about: `go`, `terminate`, `truncate`; what follows an end is FIRST.
    """

    def __init__(self, kinds: np.ndarray, seed: int, first_tick: int = 0):
        rng = np.random.default_rng(seed)
        self.ticks, self.num_envs = kinds.shape
        self.first_tick = first_tick
        self.step_type = np.full(kinds.shape, MID, np.uint8)
        self.reward = rng.normal(scale=2.0, size=kinds.shape).astype(np.float32)
        # An environment's own discounts lie anywhere in [0, 1] on the way.
        self.discount = rng.choice(np.array([1.0, 0.5, 0.9], np.float32), kinds.shape)
        self.actions = rng.integers(0, 1000, kinds.shape).astype(np.int32)
        for t in range(self.ticks):
            for b in range(self.num_envs):
                if t == 0 or self.step_type[t - 1, b] == LAST:
                    self.step_type[t, b], self.reward[t, b], self.discount[t, b] = FIRST, 0.0, 1.0
                elif kinds[t, b] != "go":
                    self.step_type[t, b] = LAST
                    self.discount[t, b] = 0.0 if kinds[t, b] == "terminate" else 1.0

    def observation(self, t: int) -> dict[str, np.ndarray]:
        t += self.first_tick
        envs = np.arange(self.num_envs)
        image = np.stack([np.full((2, 2), 10 * b + t % 7, np.uint8) for b in envs])
        return {"image": image, "place": np.stack([envs, np.full(self.num_envs, t)], axis=1).astype(np.float32)}

    def timestep(self, t: int) -> dm_env.TimeStep:
        return dm_env.TimeStep(self.step_type[t], self.reward[t], self.discount[t], self.observation(t))

    def extras(self, t: int) -> dict[str, Any]:
        """What a policy might give at tick t: which tick and environment it was, and a vector."""
        place = np.arange(self.num_envs, dtype=np.float32) + 100.0 * (t + self.first_tick)
        return {"place": place, "logits": np.stack([place, -place], axis=1)}

    def feed(self, writer: Any, *, with_extras: bool = False) -> None:
        """Tells a writer all of it."""
        writer.add_first(self.timestep(0))
        for t in range(1, self.ticks):
            extras = self.extras(t - 1) if with_extras else ()
            writer.add(self.actions[t - 1], self.timestep(t), extras)

    def items(self, n: int, gamma: float, clip: float | None = None) -> list[Item]:
        """The transitions of everything that happened, one for each step taken, by environment and start."""
        items = []
        for b in range(self.num_envs):
            for start in range(self.ticks - 1):
                if self.step_type[start, b] == LAST:
                    continue
                total, discount, end = 0.0, 1.0, start
                while end < min(start + n, self.ticks - 1) and (end == start or self.step_type[end, b] != LAST):
                    end += 1
                    reward = float(self.reward[end, b])
                    total += discount * (reward if clip is None else min(max(reward, -clip), clip))
                    discount *= gamma * float(self.discount[end, b])
                action = int(self.actions[start, b])
                items.append(Item(b, start + self.first_tick, end + self.first_tick, action, total, discount))
        return items


def read(transition: Transition) -> list[Item]:
    """The items of a batch of transitions, in its order."""
    observation, next_observation = transition.observation, transition.next_observation
    for o in (observation, next_observation):
        expected = 10 * o["place"][:, 0] + o["place"][:, 1] % 7
        np.testing.assert_array_equal(o["image"], np.broadcast_to(expected[:, None, None], o["image"].shape))
    np.testing.assert_array_equal(observation["place"][:, 0], next_observation["place"][:, 0])
    return [
        Item(int(b), int(start), int(end), int(action), float(reward), float(discount))
        for (b, start), (_, end), action, reward, discount in zip(
            observation["place"],
            next_observation["place"],
            transition.action,
            transition.reward,
            transition.discount,
            strict=True,
        )
    ]


def assert_items(got: list[Item], expected: list[Item]) -> None:
    """Checks that each environment's items are those expected, in their order, none lost and none twice."""
    for b in {item.env for item in [*got, *expected]}:
        mine, naive = ([item for item in items if item.env == b] for items in (got, expected))
        assert [item[:4] for item in mine] == [item[:4] for item in naive]
        for i in (4, 5):
            numbers = [[item[i] for item in items] for items in (mine, naive)]
            np.testing.assert_allclose(numbers[0], numbers[1], rtol=1e-5, atol=1e-5)


@st.composite
def timelines(draw: Any, max_ticks: int = 40) -> list[Timeline]:
    """Timelines one after the other, as of a writer that is flushed in between: episodes of any length, also of 1."""
    num_envs = draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    lines, tick = [], 0
    for _ in range(draw(st.integers(1, 3))):
        ticks = draw(st.integers(1, max_ticks))
        end = draw(st.sampled_from([0.02, 0.2, 0.6, 1.0]))
        kinds = rng.choice(["go", "terminate", "truncate"], (ticks, num_envs), p=[1 - end, end / 2, end / 2])
        lines.append(Timeline(kinds, seed + tick, tick))
        tick += ticks
    return lines
