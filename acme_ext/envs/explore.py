"""Small environments whose reward has to be looked for: what agents that explore are compared on."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import dm_env
import numpy as np
from dm_env import specs

from acme_ext.envs.backend import Backend
from acme_ext.envs.base import BatchedEnvironment, SingleEnvironment
from acme_ext.envs.functional import FunctionalBatch, FunctionalEnvironment, Moved
from acme_ext.envs.single import Unbatched
from acme_ext.errors import UsageError
from acme_ext.types import Array, Tree

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


class Explore(Backend):
    """`explore:NAME`; an option beside those of a task's own is `time_limit`, in steps."""

    def names(self) -> Collection[str]:
        return list(_TASKS)

    def options(self, name: str) -> Mapping[str, Any]:
        return _TASKS[name][1]

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        if (made := self.functional(name, evaluation, **options)) is not None:
            return Unbatched(FunctionalBatch(made, 1, seed))
        return _TASKS[name][0](np.random.default_rng(seed), **_checked(name, options))

    def load_batch(
        self, name: str, num_envs: int, seed: int, evaluation: bool, **options: Any
    ) -> BatchedEnvironment | None:
        made = self.functional(name, evaluation, **options)
        return None if made is None else FunctionalBatch(made, num_envs, seed)

    def functional(self, name: str, evaluation: bool, **options: Any) -> FunctionalEnvironment | None:
        make, options = _TASKS[name][0], _checked(name, options)
        if make is DiscoMaze:
            return DiscoMaze(**options, evaluation=evaluation)
        return make(**options) if make is RandomCoin else None


def _checked(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all options of a task; raises UsageError for a value that can't be."""
    options = {**_TASKS[name][1], **options}
    if options["size"] < 5:
        raise UsageError(f"size is {options['size']}: it must be at least 5.")
    if options["time_limit"] < 1:
        raise UsageError(f"time_limit counts steps, so {options['time_limit']} must be at least 1.")
    return options


class _Task(SingleEnvironment):
    """What the tasks share: a time limit that truncates, and their specs.

    Args:
        rng: of what is random.
        size: cells.
        time_limit: steps.
    """

    num_actions = len(_MOVES)

    def __init__(self, rng: np.random.Generator, *, size: int, time_limit: int):
        self._rng, self._size, self._limit = rng, size, time_limit
        self._length, self._ended = 0, True
        self._begin()
        self._shape = self._observe().shape

    def _begin(self) -> None:
        """Starts an episode."""

    def _move(self, action: int) -> tuple[np.float32, bool]:
        """Takes an action; returns the reward and whether it terminates the episode."""
        raise NotImplementedError

    def _observe(self) -> np.ndarray:
        raise NotImplementedError

    def reset(self) -> dm_env.TimeStep:
        self._length, self._ended = 0, False
        self._begin()
        return dm_env.restart(self._observe())

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._ended:
            return self.reset()
        reward, terminal = self._move(int(action))
        self._length += 1
        self._ended = terminal or self._length == self._limit
        kind = dm_env.StepType.LAST if self._ended else dm_env.StepType.MID
        return dm_env.TimeStep(kind, reward, _ZERO if terminal else _ONE, self._observe())

    def observation_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray(self._shape, np.float32, 0.0, 1.0, "observation")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(self.num_actions, np.int32, "action")


class Chain(_Task):
    """A lock of `size` places: in each one of two actions, the same in all episodes, leads on, and the other back to
    the first. Beyond the last is a reward of 1, and the episode ends. The observation is the place, one-hot.

    A random policy finds the reward once in about 2**(size + 1) steps.
    """

    num_actions = 2

    def _begin(self) -> None:
        self._place = 0

    def _move(self, action: int) -> tuple[np.float32, bool]:
        right = self._place * 2_654_435_761 >> 7 & 1  # some fixed bits, the same in all environments
        self._place = self._place + 1 if action == right else 0
        done = self._place == self._size
        return (_ONE if done else _ZERO), done

    def _observe(self) -> np.ndarray:
        return np.eye(self._size + 1, dtype=np.float32)[self._place][: self._size]


class KeyDoor(_Task):
    """Two rooms in a square, with a wall and a door between them; a key in the first, and in the second a goal worth 1
    that ends the episode. The map is always the same.

    The agent starts in the lower left corner, and the key is in the upper one; the door, which lets through who has the
    key, is at the wall's lower end, and the goal in the upper right corner. The observation is one vector: the cell,
    one-hot, twice, of which the second is used where the agent has the key.
    """

    def _begin(self) -> None:
        self._place, self._key = (self._size - 1, 0), 0

    def _move(self, action: int) -> tuple[np.float32, bool]:
        last, wall = self._size - 1, self._size // 2
        row, column = (min(max(x + d, 0), last) for x, d in zip(self._place, _MOVES[action], strict=True))
        if column != wall or (row == last and self._key):
            self._place = (row, column)
        if self._place == (0, 0):
            self._key = 1
        done = self._place == (0, last)
        return (_ONE if done else _ZERO), done

    def _observe(self) -> np.ndarray:
        observation = np.zeros((2, self._size, self._size), np.float32)
        observation[(self._key, *self._place)] = 1
        return observation.reshape(-1)


class _Room(NamedTuple):
    """Where agent and coin are, and the steps of the episode."""

    place: Array  # [2] int32 row and column
    coin: Array  # [2] int32
    time: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class RandomCoin(FunctionalEnvironment):
    """An empty room with a coin (Badia et al. 2020b, section 4.1): agent and coin start anywhere, and the coin is worth
    1 and ends the episode. The observation is `[size, size, 2]`, where the agent is and where the coin.

    Args:
        size: cells of a side.
        time_limit: steps.
    """

    size: int
    time_limit: int

    def begin(self, key: Array) -> tuple[Tree, Tree]:
        import jax
        import jax.numpy as jnp

        cells = self.size**2
        agent, more = jax.random.randint(key, (2,), 0, jnp.array([cells, cells - 1]))
        coin = (agent + 1 + more) % cells
        place, spot = (jnp.stack(jnp.divmod(cell, self.size)).astype(jnp.int32) for cell in (agent, coin))
        state = _Room(place, spot, jnp.int32(0))
        return state, self._observe(state)

    def move(self, key: Array, state: Tree, action: Array) -> Moved:
        import jax.numpy as jnp

        place = jnp.clip(state.place + jnp.array(_MOVES, jnp.int32)[action], 0, self.size - 1)
        done = jnp.all(place == state.coin)
        state = _Room(place, state.coin, state.time + 1)
        return Moved(state, self._observe(state), done.astype(jnp.float32), done, state.time >= self.time_limit)

    def _observe(self, state: _Room) -> Array:
        import jax.numpy as jnp

        both = jnp.stack([state.place, state.coin])
        return jnp.zeros(self._shape, jnp.float32).at[both[:, 0], both[:, 1], jnp.arange(2)].set(1)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.size, self.size, 2

    def observation_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray(self._shape, np.float32, 0.0, 1.0, "observation")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(len(_MOVES), np.int32, "action")


class _Maze(NamedTuple):
    """Where the agent of a maze is and has been, and the steps of the episode."""

    free: Array  # [size, size] bool
    visited: Array  # [size, size] bool
    place: Array  # [2] int32 row and column
    time: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class DiscoMaze(FunctionalEnvironment):
    """A maze without any reward whose walls have other colours at every step (Badia et al. 2020a, section 4.1): what
    changes there is no news. A wall that is run into ends the episode. Every episode has a maze of its own.

    The observation is a picture `[size, size, 3]`: the agent white, its ways black, and each piece of wall one of five
    colours. In evaluation the reward at the end of an episode is the share of the maze's cells that the agent has been
    in.

    Args:
        size: of a side, with the walls around.
        time_limit: steps.
        evaluation: see above.
    """

    size: int
    time_limit: int
    evaluation: bool

    _COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255))

    def begin(self, key: Array) -> tuple[Tree, Tree]:
        import jax
        import jax.numpy as jnp

        maze_key, colour_key = jax.random.split(key)
        start = jnp.ones(2, jnp.int32)
        visited = jnp.zeros((self.size, self.size), bool).at[1, 1].set(True)
        state = _Maze(_maze(maze_key, self.size), visited, start, jnp.int32(0))
        return state, self._observe(colour_key, state)

    def move(self, key: Array, state: Tree, action: Array) -> Moved:
        import jax.numpy as jnp

        ahead = state.place + jnp.array(_MOVES, jnp.int32)[action]
        hit = ~state.free[tuple(ahead)]
        place = jnp.where(hit, state.place, ahead)
        state = _Maze(state.free, state.visited.at[tuple(place)].set(True), place, state.time + 1)
        late = state.time >= self.time_limit
        share = state.visited.sum() / state.free.sum() if self.evaluation else 0.0
        return Moved(state, self._observe(key, state), jnp.where(hit | late, share, 0.0), hit, late)

    def _observe(self, key: Array, state: _Maze) -> Array:
        import jax
        import jax.numpy as jnp

        colours = jnp.array(self._COLOURS, jnp.uint8)[jax.random.randint(key, state.free.shape, 0, len(self._COLOURS))]
        return jnp.where(state.free[..., None], 0, colours).at[tuple(state.place)].set(255)

    def observation_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((self.size, self.size, 3), np.uint8, 0, 255, "observation")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(len(_MOVES), np.int32, "action")


def _maze(key: Array, size: int) -> Array:
    """Returns which cells of a maze without loops are free `[size, size]`: a depth-first walk over the odd ones."""
    import jax
    import jax.numpy as jnp

    moves = jnp.array(_MOVES, jnp.int32)

    def step(walk: tuple[Any, Any, Any], luck: Array) -> tuple[tuple[Any, Any, Any], None]:
        free, stack, depth = walk
        here = stack[depth]
        ahead = here + 2 * moves  # [4, 2]
        new = ((ahead > 0) & (ahead < size - 1)).all(axis=1)
        new &= ~free[tuple(ahead.clip(0, size - 1).T)]
        way = jnp.argmax(jnp.where(new, luck, -1.0))
        on = new.any()
        # Where all is walked, these two are free already.
        between, there = (jnp.where(on, here + n * moves[way], here) for n in (1, 2))
        free = free.at[tuple(between)].set(True).at[tuple(there)].set(True)
        depth = jnp.where(on, depth + 1, depth - 1)
        return (free, stack.at[depth].set(jnp.where(on, there, stack[depth])), depth), None

    cells = ((size - 1) // 2) ** 2
    free = jnp.zeros((size, size), bool).at[1, 1].set(True)
    walk = free, jnp.ones((cells, 2), jnp.int32), jnp.int32(0)
    # Each cell but the first is gone to once and back from once.
    (free, _, _), _ = jax.lax.scan(step, walk, jax.random.uniform(key, (2 * cells - 2, len(_MOVES))))
    return free


_TASKS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "chain": (Chain, {"size": 30, "time_limit": 120}),
    "key_door": (KeyDoor, {"size": 11, "time_limit": 100}),
    "random_coin": (RandomCoin, {"size": 15, "time_limit": 200}),
    "disco_maze": (DiscoMaze, {"size": 21, "time_limit": 1_000}),
}
