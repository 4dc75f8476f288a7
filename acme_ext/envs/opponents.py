"""Opponents in board games: random, open_spiel's tree search, perfect play, your own, or the agent of a run."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from acme_ext.config.fields import check_accepts, make_checked
from acme_ext.config.values import load_object
from acme_ext.errors import UsageError, nearest
from acme_ext.utils import files, install

SPIEL = {
    "tic_tac_toe": "tic_tac_toe",
    "connect_four": "connect_four",
    "othello": "othello",
}
"""Open_spiel's games that have the same rules and action numbers as pgx's (a test compares them)."""

SMALL = ("tic_tac_toe",)
"""Games that are small enough for an exhaustive search."""

KINDS = ("random", "mcts:N", "minimax", "py:MODULE:FUNCTION")
"""The kinds of opponents, apart from the agents of runs."""

_PLAYER = "acme_ext.launch.runs.players:player_of"  # by name, because this package must not import `launch`


@runtime_checkable
class Opponent(Protocol):
    """An opponent in one game at a time."""

    def begin(self) -> None:
        """Called when a new game begins."""

    def choose(self, history: Sequence[int], legal: np.ndarray) -> int:
        """Returns a legal action, given the moves so far and the mask of legal actions `[A]`."""
        ...


class Opponents(Protocol):
    """Opponents in many games in parallel; games are identified by their numbers."""

    def begin(self, game: int) -> None:
        """Called when one of the games starts again."""

    def choose(self, games: Sequence[int], histories: Sequence[Sequence[int]], states: Any) -> Sequence[int]:
        """Returns actions in some games, given the moves so far `[N]` and pgx's states `[N, ...]` of all N games."""
        ...


class RandomOpponent:
    """Plays random legal moves."""

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)

    def begin(self) -> None:
        """Does nothing."""

    def choose(self, history: Sequence[int], legal: np.ndarray) -> int:
        return int(self._rng.choice(np.nonzero(legal)[0]))


class SearchingOpponent:
    """Open_spiel's MCTS: UCT with one random rollout from each leaf and an exploration constant of 2.

    It has no solver, so it finds forced wins only through the averages of rollouts.
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
    """Plays perfectly, by exhaustive search; chooses randomly among the best moves."""

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
    """Returns a state's value, 1, 0 or -1, for the player to move (or who would move if the game were not over)."""
    if name not in _OUTCOMES:
        if state.is_terminal():
            # A terminal state doesn't say which player would move; it is the one who didn't make the last move.
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


def make_opponents(name: str, game: str, seed: int) -> Opponents:
    """Returns the opponents in all games of a batch.

    Args:
        name: `random`; `mcts:N` with N simulations per move; `minimax`, which plays perfectly; `py:module:function`, a
            function that is called as `function(game, seed)` and returns an `Opponent`; or a run directory or one of
            its checkpoints, whose agent plays as in evaluation.
        game: the game.
        seed: random seed; each game has a different one.

    Raises:
        UsageError: there is no such opponent, or it can't play this game.
    """
    check_opponent(name, game)
    return _OfRun(name, game) if is_run(name) else _EachItsOwn(name, game, seed)


class _EachItsOwn:
    """A separate opponent for each game."""

    def __init__(self, name: str, game: str, seed: int):
        self._make, self._seed = _maker(name, game), seed
        self._opponents: dict[int, Opponent] = {}

    def begin(self, game: int) -> None:
        self._of(game).begin()

    def choose(self, games: Sequence[int], histories: Sequence[Sequence[int]], states: Any) -> Sequence[int]:
        legal = np.asarray(states.legal_action_mask)
        return [self._of(n).choose(histories[n], legal[n]) for n in games]

    def _of(self, number: int) -> Opponent:
        if number not in self._opponents:
            self._opponents[number] = self._make(self._seed + number)
        return self._opponents[number]


def _maker(name: str, game: str) -> Callable[[int], Opponent]:
    """Returns a function that makes an opponent from a seed."""
    kind, _, rest = name.partition(":")
    if kind == "mcts":
        return lambda seed: SearchingOpponent(game, int(rest), seed)
    if kind == "minimax":
        return lambda seed: PerfectOpponent(game, seed)
    if kind == "py":
        made = load_object(rest)
        return lambda seed: make_checked(_WHAT, made, Opponent, game=game, seed=seed)
    return RandomOpponent


class _OfRun:
    """The agent of a run, which computes its moves in all games with one call."""

    def __init__(self, path: str, game: str):
        self._player = load_object(_PLAYER)(path)
        if self._player.game != game:
            raise UsageError(f"{path} is a run of {self._player.game}: it can't play {game}.")

    def begin(self, game: int) -> None:
        """Does nothing, because the agent only needs the positions."""

    def choose(self, games: Sequence[int], histories: Sequence[Sequence[int]], states: Any) -> Sequence[int]:
        import jax

        rows = np.asarray(games)
        return self._player.think(jax.tree.map(lambda x: np.asarray(x)[rows], states)).action.tolist()


def is_run(name: str) -> bool:
    """Whether a name is a run directory or a checkpoint. The names of other opponents take precedence.

    Raises UsageError for a path that can't be looked up, see `files.expanded`.
    """
    return bool(name) and name.partition(":")[0] not in _NAMES and files.expanded(name).is_dir()


_WHAT = "the opponent"
_NAMES = tuple(kind.partition(":")[0] for kind in KINDS)


def check_opponent(name: str, game: str | None) -> None:
    """Raises UsageError if there is no such opponent, or if it can't play the game, if one is given.

    Doesn't check which game a run plays.
    """
    if is_run(name):
        return
    kind, colon, rest = name.partition(":")
    if kind == "py" and colon:
        check_accepts(_WHAT, load_object(rest), "game", "seed")
        return
    if name not in ("random", "minimax") and kind != "mcts":
        raise UsageError(f"{name!r} is neither an opponent nor the directory of a run: {nearest(name, KINDS)}")
    if kind == "mcts" and not (rest.isdecimal() and 0 < int(rest) < 2**31):
        raise UsageError(f"the opponent {name!r} needs a number of simulations above 0 and below 2**31, as mcts:100.")
    playable = {"mcts": tuple(SPIEL), "minimax": SMALL}.get(kind)
    if playable is None or game is None:
        return
    if game not in playable:
        raise UsageError(f"the opponent {name!r} can't play {game}: it plays {', '.join(playable)}.")
    load_spiel(game)
