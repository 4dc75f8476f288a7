"""Opponents in board games: at random, by open_spiel's tree search, by all that can be played, or of one's own."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np

from acme_ext.errors import UsageError, nearest
from acme_ext.utils import install, naming

SPIEL = {
    "tic_tac_toe": "tic_tac_toe",
    "connect_four": "connect_four",
    "othello": "othello",
}
"""Open_spiel's games with the rules of pgx's, whose actions have the same numbers (a test plays them side by side)."""

SMALL = ("tic_tac_toe",)
"""Games that are small enough to be played out."""

KINDS = ("random", "mcts:N", "minimax", "py:MODULE:FUNCTION")


class Opponent(Protocol):
    """Plays one game after the other."""

    def begin(self) -> None:
        """Hears that a new game begins."""

    def choose(self, history: Sequence[int], legal: np.ndarray) -> int:
        """Returns an action after the moves so far, of those that are legal `[A]`."""
        ...


class RandomOpponent:
    """Plays any legal move."""

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)

    def begin(self) -> None:
        """Does nothing."""

    def choose(self, history: Sequence[int], legal: np.ndarray) -> int:
        return int(self._rng.choice(np.nonzero(legal)[0]))


class SearchingOpponent:
    """Open_spiel's MCTS: UCT with one random game from each leaf, an exploration constant of 2, and no solver, so that
    what is won for sure is found by the averages alone.
    """

    def __init__(self, game: str, simulations: int, seed: int):
        import pyspiel

        self._game = load_spiel(game)
        evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
        self._bot = pyspiel.MCTSBot(self._game, evaluator, 2.0, simulations, 1_000, False, seed, False)

    def begin(self) -> None:
        self._bot.restart()

    def choose(self, history: Sequence[int], legal: np.ndarray) -> int:
        return int(self._bot.step(state_after(self._game, history)))


class PerfectOpponent:
    """Plays a best move by the outcome of all that can be played, any one of them."""

    def __init__(self, game: str, seed: int):
        self._game, self._rng = load_spiel(game), np.random.default_rng(seed)

    def begin(self) -> None:
        """Does nothing."""

    def choose(self, history: Sequence[int], legal: np.ndarray) -> int:
        state = state_after(self._game, history)
        worth = {action: -outcome(str(after), after) for action, after in _moves(state)}
        best = max(worth.values())
        return int(self._rng.choice([action for action, value in worth.items() if value == best]))


_OUTCOMES: dict[str, int] = {}


def outcome(name: str, state: Any) -> int:
    """Returns what a state is worth to the player who moves, or would if it weren't over: 1, 0 or -1."""
    if name not in _OUTCOMES:
        if state.is_terminal():
            # The state doesn't say whose move it would be: the one who didn't make the last.
            last = 1 - len(state.history()) % 2
            _OUTCOMES[name] = -int(state.returns()[last])
        else:
            _OUTCOMES[name] = max(-outcome(str(after), after) for _, after in _moves(state))
    return _OUTCOMES[name]


def _moves(state: Any) -> list[tuple[int, Any]]:
    return [(action, state.child(action)) for action in state.legal_actions()]


def state_after(game: Any, history: Sequence[int]) -> Any:
    """Returns open_spiel's state after moves."""
    state = game.new_initial_state()
    for action in history:
        state.apply_action(action)
    return state


@functools.cache
def load_spiel(game: str) -> Any:
    """Returns open_spiel's game."""
    try:
        import pyspiel
    except ModuleNotFoundError:
        command = install.command("board")
        raise UsageError(f"this opponent needs open_spiel, not installed here: {command}") from None
    return pyspiel.load_game(SPIEL[game])


def make_opponent(name: str, game: str, seed: int) -> Opponent:
    """Returns an opponent.

    Args:
        name: `random`; `mcts:N` with N simulations a move; `minimax`, which knows all that can be played; or
            `py:module:function`, called as `function(game, seed)`.
        game: the game.
        seed: of all that it draws.

    Raises:
        UsageError: there is no such opponent, or it can't play this game.
    """
    check_opponent(name, game)
    kind, _, rest = name.partition(":")
    if kind == "mcts":
        return SearchingOpponent(game, int(rest), seed)
    if kind == "minimax":
        return PerfectOpponent(game, seed)
    if kind == "py":
        return cast(Callable[..., Opponent], naming.load(rest))(game, seed)
    return RandomOpponent(seed)


def check_opponent(name: str, game: str) -> None:
    """Raises UsageError unless there is such an opponent and it can play this game."""
    kind, colon, rest = name.partition(":")
    if kind == "py" and colon:
        return
    if name not in ("random", "minimax") and kind != "mcts":
        raise UsageError(f"there is no opponent {name!r}: {nearest(name, KINDS)}")
    if kind == "mcts" and not (rest.isdigit() and int(rest) > 0):
        raise UsageError(f"the opponent {name!r} needs a number of simulations above 0, as mcts:100.")
    playable = {"mcts": tuple(SPIEL), "minimax": SMALL}.get(kind)
    if playable is not None and game not in playable:
        raise UsageError(f"the opponent {name!r} can't play {game}: it plays {', '.join(playable)}.")
    if playable is not None:
        load_spiel(game)
