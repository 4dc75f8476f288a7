"""Board games as `FunctionalEnvironment`s, for compiled runs; `envs.board` is for other runs."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.envs.base import StatedSpecs
from acme_ext.envs.board_rules import RANDOM, rules_of, specs_of
from acme_ext.envs.functional import FunctionalEnvironment, Moved
from acme_ext.errors import UsageError
from acme_ext.specs import ACTION_MASK, PLAYER, STATE
from acme_ext.types import Array, Tree


class _Game(NamedTuple):
    """The state of a game."""

    state: Any  # pgx's state
    agent: Array  # [] int32 the agent's player number; ignored if the agent moves for both sides


class BoardGame(StatedSpecs, FunctionalEnvironment):
    """A game with the observations, actions and rewards of `envs.board.BoardEnvironment`.

    There are three differences: the only opponent is the random one; the agent's side is random in every game; and an
    illegal action, which is an error there, loses the game by pgx's rules.

    Args:
        game: the game's name in pgx.
        evaluation: whether the environment is for evaluation, where the opponent plays even with `self_play`.
        opponent: must be `random`.
        self_play: whether the agent moves for both sides.
        game_state: whether observations include the whole state.
        opening_moves: must be 0.

    Raises:
        UsageError: an option is not supported in compiled runs.
    """

    def __init__(
        self,
        game: str,
        evaluation: bool,
        *,
        opponent: str = RANDOM,
        self_play: bool = False,
        game_state: bool = False,
        opening_moves: int = 0,
    ):
        if opponent != RANDOM:
            raise UsageError(
                f"opponent is {opponent!r}: in a compiled run the opponent is {RANDOM!r}; leave it out, and evaluate "
                "the run against others afterwards (acme-ext evaluate)."
            )
        if opening_moves:
            raise UsageError(f"opening_moves is {opening_moves}: a compiled run has no drawn openings; leave it out.")
        self._rules, self._both = rules_of(game), self_play and not evaluation
        self._observation_spec, self._action_spec = specs_of(game, self_play, game_state)

    def begin(self, key: Array) -> tuple[Tree, Tree]:
        start_key, side_key, key = jax.random.split(key, 3)
        game = _Game(self._rules.init(start_key), jax.random.randint(side_key, (), 0, 2))
        game, _ = self._answered(key, game)
        return game, self._look(game.state)

    def move(self, key: Array, state: Tree, action: Array) -> Moved:
        mine = state.state.current_player if self._both else state.agent
        game = state._replace(state=self._rules.step(state.state, action))
        reward = game.state.rewards[mine]
        game, more = self._answered(key, game)
        return Moved(game, self._look(game.state), reward + more, _is_over(game.state), jnp.bool_(False))

    def _answered(self, key: Array, game: _Game) -> tuple[_Game, Array]:
        """Plays the opponent's moves until the agent is to move; returns the game, and the agent's reward `[]`."""
        if self._both:
            return game, jnp.float32(0)

        def theirs(carry: tuple) -> Array:
            state = carry[0]
            return ~_is_over(state) & (state.current_player != game.agent)

        def answer(carry: tuple) -> tuple:
            state, key, total = carry
            key, use = jax.random.split(key)
            action = jax.random.categorical(use, jnp.where(state.legal_action_mask, 0.0, -jnp.inf))
            state = self._rules.step(state, action.astype(jnp.int32))
            return state, key, total + state.rewards[game.agent]

        state, _, total = jax.lax.while_loop(theirs, answer, (game.state, key, jnp.float32(0)))
        return game._replace(state=state), total

    def _look(self, state: Any) -> Tree:
        seen = {"board": state.observation, ACTION_MASK: state.legal_action_mask, PLAYER: state.current_player}
        if STATE in self._observation_spec:
            seen[STATE] = self._rules.pack(state)
        return {name: seen[name] for name in self._observation_spec}


def _is_over(state: Any) -> Array:
    return state.terminated | state.truncated
