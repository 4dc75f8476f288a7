"""Round-robin tournaments in board games, and Elo ratings of the players."""

import functools
import pathlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from acme_ext.config.fields import check_seed
from acme_ext.envs.board_rules import rules_of
from acme_ext.envs.opponents import Opponents, check_opponent, is_run, make_opponents
from acme_ext.errors import UsageError
from acme_ext.launch.runs.players import player_of
from acme_ext.utils import compiling, plots

_RESAMPLES = 200


class Held(NamedTuple):
    """The results of a tournament."""

    game: str
    names: list[str]
    outcomes: dict[tuple[int, int], np.ndarray]  # of each pair's games: 1, 0 or -1 for the first player
    ratings: np.ndarray  # [N] Elo
    intervals: np.ndarray  # [N, 2] 95% confidence intervals

    def table(self) -> list[str]:
        """Returns the results as lines of a table, with the strongest player first."""
        lines = ["| player | Elo | 95% | won | drawn | lost |", "|---|--:|--:|--:|--:|--:|"]
        for i in np.argsort(-self.ratings):
            own = np.concatenate(
                [(results if pair[0] == i else -results) for pair, results in self.outcomes.items() if i in pair]
            )
            won, drawn, lost = (int(np.sum(own == outcome)) for outcome in (1, 0, -1))
            low, high = self.intervals[i]
            lines.append(
                f"| {self.names[i]} | {self.ratings[i]:.0f} | {low:.0f} to {high:.0f} | {won} | {drawn} | {lost} |"
            )
        return lines


def hold(names: Sequence[str], games: int, opening_moves: int, seed: int = 0) -> Held:
    """Runs a round-robin tournament.

    Args:
        names: names of the players, see `envs.opponents.make_opponents`; at least one must be a run.
        games: games of each pair. Two consecutive games have the same opening, with sides changed.
        opening_moves: number of random moves at the start of a game.
        seed: seed of openings and opponents.

    Raises:
        UsageError: there are fewer than two players, a player is named twice, there is no run, or the runs are of
            different games.
    """
    if len(names) < 2 or len(set(names)) < len(names):
        raise UsageError("a tournament needs two players or more, each named once.")
    check_seed(seed)
    if opening_moves < 0:
        raise UsageError(f"opening_moves is {opening_moves}: it must not be negative.")
    for name in names:
        check_opponent(name, None)
    games_of = {name: player_of(name).game for name in names if is_run(name)}
    if not games_of:
        raise UsageError("a tournament needs at least one run directory among its players, which determines the game.")
    if len(found := set(games_of.values())) > 1:
        raise UsageError(f"these runs are of different games: {', '.join(sorted(found))}.")
    (game,) = found
    entrants = [make_opponents(name, game, seed + 10_000 * i) for i, name in enumerate(names)]
    outcomes = {
        (i, j): match(game, entrants[i], entrants[j], games, opening_moves, seed)
        for i in range(len(names))
        for j in range(i + 1, len(names))
    }
    anchor = list(names).index("random") if "random" in names else 0
    ratings = elo(outcomes, len(names), anchor)
    rng = np.random.default_rng(seed)
    openings = _openings(game, games, opening_moves, seed).moves
    repeat = {(i, j) for i, j in outcomes if is_run(names[i]) and is_run(names[j])}
    again = [elo(drawn, len(names), anchor) for drawn in _resampled(outcomes, openings, repeat, rng)]
    return Held(game, list(names), outcomes, ratings, np.percentile(again, [2.5, 97.5], axis=0).T)


def _resampled(
    outcomes: dict, openings: Sequence[Sequence[int]], repeat: Collection[tuple[int, int]], rng: np.random.Generator
) -> Iterator[dict]:
    """Yields outcomes of openings drawn with replacement, because games with the same opening may be the same game.

    If all games have the same opening, single games are drawn instead, except for pairs that `repeat` the same game.
    """
    numbers: dict[tuple[int, ...], list[int]] = {}
    for n, opening in enumerate(openings):
        numbers.setdefault(tuple(opening), []).append(n)
    by_opening, single = list(numbers.values()), [[n] for n in range(len(openings))]
    for _ in range(_RESAMPLES):
        drawn = {}
        for pair, results in outcomes.items():
            groups = single if len(by_opening) == 1 and pair not in repeat else by_opening
            drawn[pair] = np.concatenate([results[groups[i]] for i in rng.integers(len(groups), size=len(groups))])
        yield drawn


@functools.cache
def _compiled(game: str) -> tuple[Callable, Callable]:
    """Returns the compiled functions that begin and step several games."""
    rules = rules_of(game)
    return compiling.jit(jax.vmap(rules.init)), compiling.jit(jax.vmap(rules.step))


class _Opened(NamedTuple):
    """Games after the random moves at their start."""

    states: Any  # pgx's, [games, ...]
    moves: list[list[int]]
    beginner: np.ndarray  # [games] the player who made the first move


def _openings(game: str, games: int, opening_moves: int, seed: int) -> _Opened:
    """Returns games after random moves; two consecutive ones have the same."""
    init, step = _compiled(game)
    keys = jax.vmap(jax.random.PRNGKey)(np.arange(games) // 2 + 1_000 * seed)
    states = jax.tree.map(np.asarray, init(keys))
    beginner, moves = states.current_player, [[] for _ in range(games)]
    draws = [np.random.default_rng((seed, n // 2)) for n in range(games)]
    for _ in range(opening_moves):
        over, actions = states.terminated | states.truncated, np.zeros(games, np.int32)
        for n in np.nonzero(~over)[0]:
            actions[n] = draws[n].choice(np.nonzero(states.legal_action_mask[n])[0])
            moves[n].append(int(actions[n]))
        stepped = jax.tree.map(np.asarray, step(states, actions))
        states = jax.tree.map(  # the rewards of a game that is over stay
            lambda old, new, over=over: np.where(over.reshape(-1, *[1] * (new.ndim - 1)), old, new), states, stepped
        )
    return _Opened(states, moves, beginner)


def match(game: str, first: Opponents, second: Opponents, games: int, opening_moves: int, seed: int = 0) -> np.ndarray:
    """Plays games; returns their outcomes `[games]` for the first player, 1, 0 or -1. Sides change after each game."""
    for entrant in (first, second):
        for n in range(games):
            entrant.begin(n)
    states, histories, beginner = _openings(game, games, opening_moves, seed)
    _, step = _compiled(game)
    mine = np.where(np.arange(games) % 2 == 0, beginner, 1 - beginner)
    over = states.terminated | states.truncated
    results = np.where(over, states.rewards[np.arange(games), mine], 0).astype(np.int64)
    while not over.all():
        actions = np.zeros(games, np.int32)
        for entrant, theirs in ((first, states.current_player == mine), (second, states.current_player != mine)):
            rows = np.nonzero(theirs & ~over)[0]
            if len(rows):
                actions[rows] = entrant.choose(rows.tolist(), histories, states)
        for n in np.nonzero(~over)[0]:
            histories[n].append(int(actions[n]))
        states = jax.tree.map(np.asarray, step(states, actions))
        ended = ~over & (states.terminated | states.truncated)
        results[ended] = states.rewards[np.arange(games), mine][ended]
        over = over | ended
    return results


def elo(outcomes: dict[tuple[int, int], np.ndarray], count: int, anchor: int) -> np.ndarray:
    """Returns the maximum-likelihood Elo ratings `[count]` (Bradley and Terry 1952), relative to one player.

    P(i beats j) = 1 / (1 + 10**((r_j - r_i) / 400)); a draw is half a win for each. One drawn game of each pair is
    added, so that a player who won all games has a finite rating.

    Args:
        outcomes: outcomes of each pair's games: 1, 0 or -1 for the first player.
        count: number of players.
        anchor: the player whose rating is 0.
    """
    wins = np.zeros((count, count))
    for (i, j), results in outcomes.items():
        wins[i, j] += np.sum((np.asarray(results) + 1) / 2) + 0.5
        wins[j, i] += np.sum((1 - np.asarray(results)) / 2) + 0.5
    total, strength = wins + wins.T, np.ones(count)
    for _ in range(2_000):  # Hunter 2004, eq. 3
        apart = total / (strength[:, None] + strength)
        strength = wins.sum(1) / apart.sum(1)
        strength /= strength[anchor]
    return 400 * np.log10(strength)


def draw(held: Held, path: str | pathlib.Path) -> pathlib.Path:
    """Draws the ratings with their intervals; returns the figure's path."""
    path, order = pathlib.Path(path), np.argsort(held.ratings)
    figure = plots.new_figure(7, 1 + 0.5 * len(order))
    axes = figure.add_subplot()
    ratings, bounds = held.ratings[order], held.intervals[order]
    apart = np.abs(np.stack([ratings - bounds[:, 0], bounds[:, 1] - ratings]))
    axes.errorbar(ratings, np.arange(len(order)), xerr=apart, fmt="o", capsize=4)
    axes.set_yticks(np.arange(len(order)), [held.names[i] for i in order])
    axes.set_xlabel("Elo, with intervals of 95%")
    axes.set_title(held.game)
    axes.grid(axis="x", alpha=0.3)
    return plots.save(figure, path)
