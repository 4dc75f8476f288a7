"""Two-player board games from pgx; one compiled call steps all games of a batch.

By default, an opponent moves inside `step`, so that any agent can learn the game. With `self_play`, the agent moves for
both sides; this is for agents whose values are from the perspective of the player to move. Evaluations are always
against the opponent, and the agent's side changes after each game.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.config.types import NonNegativeInt
from acme_ext.envs.backend import Backend
from acme_ext.envs.base import BatchedEnvironment, StatedSpecs
from acme_ext.envs.board_rules import RANDOM, rules_of, specs_of
from acme_ext.envs.functional import FunctionalEnvironment
from acme_ext.envs.opponents import Opponents, check_opponent, make_opponents
from acme_ext.envs.single import Unbatched
from acme_ext.errors import RunError, UsageError
from acme_ext.specs import ACTION_MASK, PLAYER, STATE
from acme_ext.types import FIRST, LAST, MID, Array, Tree
from acme_ext.utils import compiling
from acme_ext.utils.trees import select

_MOST_DRAWS = 100  # of a game whose random opening ends it

GAMES = ("tic_tac_toe", "connect_four", "othello", "hex", "go_9x9", "chess")


class Board(Backend):
    """`board:NAME`."""

    types = {"opening_moves": NonNegativeInt}

    def names(self) -> Collection[str]:
        return GAMES

    def options(self, name: str) -> Mapping[str, Any]:
        return {"opponent": RANDOM, "self_play": False, "game_state": False, "opening_moves": 0}

    def load(self, name: str, seed: int, evaluation: bool, **options: Any) -> dm_env.Environment:
        return Unbatched(BoardEnvironment(name, 1, seed, evaluation, **options))

    def load_batch(
        self, name: str, num_envs: int, seed: int, evaluation: bool, **options: Any
    ) -> BatchedEnvironment | None:
        return BoardEnvironment(name, num_envs, seed, evaluation, **options)

    def functional(self, name: str, evaluation: bool, **options: Any) -> FunctionalEnvironment:
        from acme_ext.envs.jax_board import BoardGame

        return BoardGame(name, evaluation, **options)


class _Fetched(NamedTuple):
    """The parts of the state that the environment needs after a step, as NumPy arrays `[B, ...]`."""

    board: np.ndarray
    legal: np.ndarray
    player: np.ndarray
    rewards: np.ndarray  # [B, 2] by player
    over: np.ndarray
    packed: np.ndarray


@functools.cache
def _compiled(game: str, packs: bool) -> tuple[Callable, Callable]:
    """Returns the compiled functions that start and step a batch of games."""
    rules = rules_of(game)

    def look(states: Any) -> tuple:
        packed = jax.vmap(rules.pack)(states) if packs else jnp.zeros((len(states.terminated), 0), jnp.uint8)
        over = states.terminated | states.truncated
        return states.observation, states.legal_action_mask, states.current_player, states.rewards, over, packed

    def begin(states: Any, rows: Array, keys: Array) -> tuple:
        fresh = jax.vmap(rules.init)(jax.vmap(jax.random.PRNGKey)(keys))
        states = fresh if states is None else select(rows, fresh, states)
        return states, look(states)

    def step(states: Any, rows: Array, actions: Array) -> tuple:
        states = select(rows, jax.vmap(rules.step)(states, actions), states)
        return states, look(states)

    return compiling.jit(begin), compiling.jit(step)


class BoardEnvironment(StatedSpecs, BatchedEnvironment):
    """A batch of games.

    Observations have the fields `board` [H, W, C], the planes of pgx from the perspective of the player to move, and
    `action_mask`; with `self_play` also `player`, the number of the player to move, 0 or 1; and with `game_state` also
    the whole state as bytes. The reward at the end is 1, 0 or -1: with self-play for the player who moved, otherwise
    for the agent.

    Args:
        game: the game's name in pgx.
        num_envs: number of games.
        seed: seed of the starting player, the opponent and the openings.
        evaluation: whether the environment is for evaluation, where the opponent plays even with `self_play`.
        opponent: see `opponents.make_opponents`.
        self_play: whether the agent moves for both sides.
        game_state: whether observations include the state, for searches with the game's rules.
        opening_moves: number of random moves at the start of a game. Rows 2i and 2i + 1, in which the agent has
            different sides, have the same openings.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        seed: int,
        evaluation: bool,
        *,
        opponent: str = RANDOM,
        self_play: bool = False,
        game_state: bool = False,
        opening_moves: int = 0,
    ):
        check_opponent(opponent, game)
        self.num_envs, self._game, self._seed = num_envs, game, seed
        self._both = self_play and not evaluation
        self._fields = {PLAYER: self_play, STATE: game_state}
        self._opening_moves = opening_moves
        self._device = jax.devices("cpu")[0]
        with jax.default_device(self._device):
            self._observation_spec, self._action_spec = specs_of(game, self_play, game_state)
            self._begin, self._step = _compiled(game, game_state)
        self._opponents: Opponents | None = None
        if not self._both:
            with jax.default_device(self._device):
                self._opponents = make_opponents(opponent, game, seed)
        self._states: Any = None
        self._episode = np.zeros(num_envs, np.int64)
        self._agent = np.zeros(num_envs, np.int32)  # the agent's player number, if there is an opponent
        self._last = np.ones(num_envs, np.bool_)
        self._seen: Any = None
        self.histories: list[list[int]] = [[] for _ in range(num_envs)]
        """The moves of each game so far."""

    def reset(self) -> dm_env.TimeStep:
        self._states = None
        self._start(np.ones(self.num_envs, np.bool_))
        return self._timestep(np.full(self.num_envs, FIRST, np.uint8), np.zeros(self.num_envs, np.float32))

    def step(self, actions: Any) -> dm_env.TimeStep:
        actions = np.asarray(actions, np.int32)
        resets, rows = self._last.copy(), np.arange(self.num_envs)
        moves = ~resets
        self._check_legal(
            moves, actions, "was given", f"agents must choose an action that the observation's {ACTION_MASK!r} allows"
        )
        mover = self._seen.player
        self._move(moves, actions)
        mine = mover if self._both else self._agent
        reward = np.where(moves, self._seen.rewards[rows, mine], 0).astype(np.float32)
        if resets.any():
            self._start(resets)
        reward += self._answer(moves)
        step_type = np.where(resets, FIRST, np.where(self._seen.over, LAST, MID)).astype(np.uint8)
        return self._timestep(step_type, reward)

    def _timestep(self, step_type: np.ndarray, reward: np.ndarray) -> dm_env.TimeStep:
        seen, self._last = self._seen, step_type == LAST
        observation: Tree = {"board": seen.board, ACTION_MASK: seen.legal}
        if self._fields[PLAYER]:
            observation[PLAYER] = seen.player
        if self._fields[STATE]:
            observation[STATE] = seen.packed
        return dm_env.TimeStep(step_type, reward, np.where(self._last, 0.0, 1.0).astype(np.float32), observation)

    def _start(self, rows: np.ndarray) -> None:
        """Starts new games in some rows, and plays them up to the agent's first move.

        A game that is over before that move, because of its random opening, is drawn again.
        """
        self._episode += rows
        draws = [np.random.default_rng((self._seed, row // 2, n)) for row, n in enumerate(self._episode.tolist())]
        for _ in range(_MOST_DRAWS):
            self._begin_games(rows, draws)
            self._answer(rows)
            rows = rows & self._seen.over
            if not rows.any():
                return
        raise UsageError(
            f"opening_moves is {self._opening_moves}: {self.name} was over before the agent's first move in "
            f"{_MOST_DRAWS} games (of game {np.argmax(rows)})."
        )

    def _begin_games(self, rows: np.ndarray, draws: Sequence[np.random.Generator]) -> None:
        """Starts new games in some rows, with random openings."""
        keys = np.array([draw.integers(2**31) for draw in draws], np.uint32)
        with jax.default_device(self._device):
            self._keep(self._begin(self._states, rows, keys))
        for row in np.nonzero(rows)[0]:
            self.histories[row] = []
            if self._opponents is not None:
                self._opponents.begin(int(row))
        # The agent begins in one of two neighbouring rows, and in the other one in the next game.
        second = (np.arange(self.num_envs) + self._episode) % 2
        self._agent = np.where(rows, self._seen.player ^ second, self._agent).astype(np.int32)
        for _ in range(self._opening_moves):
            moves = rows & ~self._seen.over
            legal = self._seen.legal
            self._move(moves, [draw.choice(np.nonzero(legal[row])[0]) for row, draw in enumerate(draws)])

    def _answer(self, rows: np.ndarray) -> np.ndarray:
        """Plays the opponent's moves in the rows where it is to move; returns the agent's rewards `[B]` from them."""
        total = np.zeros(self.num_envs, np.float32)
        if self._opponents is None:
            return total
        while True:  # a player may move twice in a row if the other one has no legal move
            theirs = rows & ~self._seen.over & (self._seen.player != self._agent)
            if not theirs.any():
                return total
            actions = np.zeros(self.num_envs, np.int32)
            with jax.default_device(self._device):
                actions[theirs] = self._opponents.choose(np.nonzero(theirs)[0].tolist(), self.histories, self._states)
            self._check_legal(theirs, actions, "was given by its opponent", "an opponent must choose a legal one")
            self._move(theirs, actions)
            total += np.where(theirs, self._seen.rewards[np.arange(self.num_envs), self._agent], 0)

    def _check_legal(self, rows: np.ndarray, actions: np.ndarray, given: str, rule: str) -> None:
        """Raises RunError if an action in one of some rows is not legal."""
        known = (actions >= 0) & (actions < self._seen.legal.shape[1])
        legal = known & self._seen.legal[np.arange(self.num_envs), np.where(known, actions, 0)]
        if (rows & ~legal).any():
            row = int(np.argmax(rows & ~legal))
            raise RunError(
                f"{self.name} {given} the action {actions[row]} in game {row}, which is not legal there: {rule}."
            )

    def _move(self, rows: np.ndarray, actions: Any) -> None:
        actions = np.where(rows, actions, 0).astype(np.int32)
        for row in np.nonzero(rows)[0]:
            self.histories[row].append(int(actions[row]))
        with jax.default_device(self._device):
            self._keep(self._step(self._states, rows, actions))

    def _keep(self, stepped: tuple) -> None:
        self._states, looked = stepped
        self._seen = _Fetched(*(np.asarray(leaf) for leaf in looked))

    def close(self) -> None:
        self._states = None
