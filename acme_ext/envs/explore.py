"""Small hard-exploration environments, for comparing exploration methods."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, NamedTuple

import dm_env
import numpy as np
from dm_env import specs

from acme_ext.config.types import PositiveInt, Rule
from acme_ext.envs.backend import Backend
from acme_ext.envs.base import BatchedEnvironment, LimitedEnvironment
from acme_ext.envs.functional import FunctionalBatch, FunctionalEnvironment, Moved
from acme_ext.envs.single import Unbatched
from acme_ext.types import Array, Tree

_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


class Explore(Backend):
    """`explore:NAME`; all tasks have the options `size` and `max_steps`."""

    types = {"size": Annotated[int, Rule(lambda size: size >= 5, "it must be at least 5")], "max_steps": PositiveInt}

    def names(self) -> Collection[str]:
        return list(_TASKS)

    def options(self, name: str) -> Mapping[str, Any]:
        return _TASKS[name][1]

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        if (made := self.functional(name, evaluation, **options)) is not None:
            return Unbatched(FunctionalBatch(made, 1, seed))
        return _TASKS[name][0](**{**self.options(name), **options})

    def load_batch(
        self, name: str, num_envs: int, seed: int, evaluation: bool, **options: Any
    ) -> BatchedEnvironment | None:
        made = self.functional(name, evaluation, **options)
        return None if made is None else FunctionalBatch(made, num_envs, seed)

    def functional(self, name: str, evaluation: bool, **options: Any) -> FunctionalEnvironment | None:
        make, options = _TASKS[name][0], {**self.options(name), **options}
        if make is DiscoMaze:
            return DiscoMaze(**options, evaluation=evaluation)
        return make(**options) if make is RandomCoin else None


class _Task(LimitedEnvironment):
    """The base class of tasks, with their specs.

    Args:
        size: size of the task in cells.
        max_steps: steps after which an episode is truncated.
    """

    num_actions = len(_MOVES)

    def __init__(self, *, size: int, max_steps: int):
        super().__init__(max_steps)
        self._size = size
        self._begin()
        self._observation_spec = specs.BoundedArray(self._observe().shape, np.float32, 0.0, 1.0, "observation")
        self._action_spec = specs.DiscreteArray(self.num_actions, np.int32, "action")


class Chain(_Task):
    """A combination lock: a chain of `size` states with two actions.

    In each state, one action, which is the same in all episodes, leads to the next state, and the other back to the
    first. After the last state there is a reward of 1, and the episode ends. The observation is the state, one-hot. A
    random policy finds the reward about once in 2**(size + 1) steps.
    """

    num_actions = 2

    def _begin(self) -> None:
        self._place = 0

    def _move(self, action: int) -> tuple[bool, bool]:
        right = self._place * 2_654_435_761 >> 7 & 1  # fixed pseudo-random bits, the same in all environments
        self._place = self._place + 1 if action == right else 0
        done = self._place == self._size
        return done, done

    def _observe(self) -> np.ndarray:
        return np.eye(self._size + 1, dtype=np.float32)[self._place][: self._size]


class KeyDoor(_Task):
    """Two rooms with a wall and a door between them; the map is always the same.

    The agent starts in the lower left corner. The key is in the upper left corner. The door is at the wall's lower end,
    and lets the agent pass only with the key. The goal in the upper right corner gives a reward of 1 and ends the
    episode. The observation is a vector of two one-hot grids of the agent's cell: the first is used without the key,
    and the second with it.
    """

    def _begin(self) -> None:
        self._place, self._key = (self._size - 1, 0), 0

    def _move(self, action: int) -> tuple[bool, bool]:
        last, wall = self._size - 1, self._size // 2
        row, column = (min(max(x + d, 0), last) for x, d in zip(self._place, _MOVES[action], strict=True))
        if column != wall or (row == last and self._key):
            self._place = (row, column)
        if self._place == (0, 0):
            self._key = 1
        done = self._place == (0, last)
        return done, done

    def _observe(self) -> np.ndarray:
        observation = np.zeros((2, self._size, self._size), np.float32)
        observation[(self._key, *self._place)] = 1
        return observation.reshape(-1)


class _Room(NamedTuple):
    """The positions of agent and coin, and the steps of the episode."""

    place: Array  # [2] int32 row and column
    coin: Array  # [2] int32
    time: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class RandomCoin(FunctionalEnvironment):
    """An empty room with a coin (Badia et al. 2020b, section 4.1).

    Agent and coin start at random places. The coin gives a reward of 1 and ends the episode. The observation, bool
    `[size, size, 2]`, has one plane for the agent's position and one for the coin's.

    Args:
        size: cells per side.
        max_steps: steps after which an episode is truncated.
    """

    size: int
    max_steps: int

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
        return Moved(state, self._observe(state), done.astype(jnp.float32), done, state.time >= self.max_steps)

    def _observe(self, state: _Room) -> Array:
        import jax.numpy as jnp

        both = jnp.stack([state.place, state.coin])
        return jnp.zeros(self._shape, bool).at[both[:, 0], both[:, 1], jnp.arange(2)].set(True)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.size, self.size, 2

    def observation_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray(self._shape, np.bool_, False, True, "observation")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(len(_MOVES), np.int32, "action")


class _Maze(NamedTuple):
    """The maze, the agent's current and visited cells, and the steps of the episode."""

    free: Array  # [size, size] bool
    visited: Array  # [size, size] bool
    place: Array  # [2] int32 row and column
    time: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class DiscoMaze(FunctionalEnvironment):
    """A maze without rewards, whose walls change their colours at every step (Badia et al. 2020a, section 4.1).

    The changing colours are noise that an agent should not count as novelty. Running into a wall ends the episode.
    Every episode has a new maze. The observation is an image `[size, size, 3]`: the agent is white, free cells are
    black, and each wall cell has one of five random colours. In evaluation, the reward at the end of an episode is the
    fraction of the free cells that the agent has visited.

    Args:
        size: cells per side, including the outer walls.
        max_steps: steps after which an episode is truncated.
        evaluation: whether the environment is for evaluation.
    """

    size: int
    max_steps: int
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
        late = state.time >= self.max_steps
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
    """Returns the free cells `[size, size]` of a random maze without loops, from a depth-first walk over odd cells."""
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
        # If all neighbours are visited, these two cells are already free.
        between, there = (jnp.where(on, here + n * moves[way], here) for n in (1, 2))
        free = free.at[tuple(between)].set(True).at[tuple(there)].set(True)
        depth = jnp.where(on, depth + 1, depth - 1)
        return (free, stack.at[depth].set(jnp.where(on, there, stack[depth])), depth), None

    cells = ((size - 1) // 2) ** 2
    free = jnp.zeros((size, size), bool).at[1, 1].set(True)
    walk = free, jnp.ones((cells, 2), jnp.int32), jnp.int32(0)
    # The walk enters and leaves each cell except the first once.
    (free, _, _), _ = jax.lax.scan(step, walk, jax.random.uniform(key, (2 * cells - 2, len(_MOVES))))
    return free


_TASKS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "chain": (Chain, {"size": 30, "max_steps": 120}),
    "key_door": (KeyDoor, {"size": 11, "max_steps": 100}),
    "random_coin": (RandomCoin, {"size": 15, "max_steps": 200}),
    "disco_maze": (DiscoMaze, {"size": 21, "max_steps": 1_000}),
}
