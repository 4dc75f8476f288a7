"""Plays the agents of runs against all possible replies in a board game, and names moves."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.envs.board_rules import rules_of
from acme_ext.errors import UsageError
from acme_ext.launch.runs.players import RunPlayer
from acme_ext.types import Array
from acme_ext.utils import compiling

COLUMNS = "abcdefghijklmnopqrs"
"""The names of a board's columns."""


class Replies(NamedTuple):
    """A player's results against all possible replies, as the first or as the second player."""

    won: int  # final positions
    drawn: int
    lost: int
    lines: tuple[tuple[int, ...], ...] = ()  # for each lost position, all moves of one game that leads there


def against_every_reply(player: RunPlayer, most: int = 200_000) -> tuple[Replies, Replies]:
    """Plays against every possible move of the opponent; returns the results as first and as second player.

    A position that is reached in several ways counts once, because the player makes the same move in it.

    Args:
        player: the player.
        most: maximum number of positions in one ply.

    Raises:
        UsageError: there are more positions.
    """
    rules = rules_of(player.game)
    step = compiling.jit(jax.vmap(rules.step))

    def after(states: Any, actions: np.ndarray) -> Any:
        size = 1 << max(5, (len(actions) - 1).bit_length())
        states, moves = jax.tree.map(lambda x: _filled(x, size), (states, jnp.asarray(actions, jnp.int32)))
        return jax.tree.map(lambda x: np.asarray(x)[: len(actions)], step(states, moves))

    start = jax.tree.map(lambda x: np.asarray(x)[None], rules.init(jax.random.PRNGKey(0)))
    results = []
    for second in (0, 1):
        me = start.current_player[0] ^ second
        states, lines, counts, lost = start, [()], [0, 0, 0], []
        while lines:
            rows, actions = np.nonzero(states.legal_action_mask & (states.current_player != me)[:, None])
            if len(rows) > most:
                raise UsageError(f"{player.game} has too many replies to play them all.")
            if (mine := np.nonzero(states.current_player == me)[0]).size:
                own = jax.tree.map(lambda x, mine=mine: x[mine], states)
                rows = np.concatenate([rows, mine])
                actions = np.concatenate([actions, player.think(own).action])
            states = after(jax.tree.map(lambda x, rows=rows: x[rows], states), actions)
            kept = _distinct(states)
            states = jax.tree.map(lambda x, kept=kept: x[kept], states)
            lines = [(*lines[rows[row]], int(actions[row])) for row in kept]
            over = states.terminated | states.truncated
            for row in np.nonzero(over)[0]:
                outcome = int(states.rewards[row, me])
                counts[1 - outcome] += 1
                if outcome < 0:
                    lost.append(lines[row])
            states = jax.tree.map(lambda x, over=over: x[~over], states)
            lines = [lines[row] for row in np.nonzero(~over)[0]]
        results.append(Replies(counts[0], counts[1], counts[2], tuple(lost)))
    return results[0], results[1]


def _filled(x: Array, size: int) -> Array:
    return jnp.concatenate([x, jnp.broadcast_to(x[:1], (size - len(x), *x.shape[1:]))])


def _distinct(states: Any) -> np.ndarray:
    """Returns the indices of states `[N, ...]` without duplicates, as the player to move sees them."""
    looks = [
        (player, over, board.tobytes(), rewards.tobytes())
        for player, over, board, rewards in zip(
            states.current_player.tolist(), states.terminated.tolist(), states.observation, states.rewards, strict=True
        )
    ]
    first = {look: row for row, look in reversed(list(enumerate(looks)))}
    return np.array(sorted(first.values()))


def describe_replies(replies: Sequence[Replies], game: str) -> str:
    """Returns the results of `against_every_reply` in words, with the moves of each lost game."""
    places = list(zip(("first", "second"), replies, strict=True))
    said = ["; ".join(f"{place}: {r.won} won, {r.drawn} drawn, {r.lost} lost" for place, r in places)]
    for place, r in places:
        said += [f"lost as {place}: {' '.join(name_of(action, game) for action in line)}" for line in r.lines]
    return "\n".join(said)


def name_of(action: int, game: str) -> str:
    """Returns a move's name, as a person types it."""
    height, width = rules_of(game).planes.shape[:2]
    if game == "connect_four":
        return COLUMNS[action]
    if action >= height * width:
        return "pass"
    return f"{COLUMNS[action % width]}{action // width + 1}"
