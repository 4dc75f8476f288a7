"""Lets a person play against the agent of a run in the terminal."""

import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from acme_ext.commands.players import COLUMNS, name_of
from acme_ext.commands.trees import svg
from acme_ext.envs.board_rules import rules_of
from acme_ext.errors import UsageError
from acme_ext.launch.runs.players import RunPlayer, Thought
from acme_ext.utils import compiling, files

_NOT_DRAWN = ("chess", "hex")  # their planes have more than the players' stones, or are rotated for one player


def play(
    player: RunPlayer,
    *,
    person_begins: bool = True,
    ask: Callable[[str], str] = input,
    say: Callable[[str], None] = print,
    trees: pathlib.Path | None = None,
) -> int | None:
    """Plays one game; returns its outcome for the person, 1, 0 or -1, or None if the person gave up.

    Args:
        player: the agent.
        person_begins: whether the person makes the first move.
        ask: a function that asks for a move.
        say: a function that prints a line.
        trees: a folder for drawings of the agent's search trees, `move-N.svg`; None for no drawings.

    Raises:
        UsageError: the game can't be shown in the terminal, or `trees` is given and the agent doesn't search.
    """
    if player.game in _NOT_DRAWN:
        raise UsageError(f"{player.game} can't be played in the terminal.")
    if trees is not None and not player.plans:
        raise UsageError(f"the agent of {player.name} doesn't search, so there are no trees to write.")
    if trees is not None:
        files.make_writable_folder(trees)
    rules = rules_of(player.game)
    step, state = compiling.jit(rules.step), rules.init(jax.random.PRNGKey(0))
    begins, moves = int(state.current_player), 0
    person = begins if person_begins else 1 - begins
    say(f"{player.game}: you are {'X' if person_begins else 'O'}. Moves are {_example(player.game)}; q gives up.")
    while not (bool(state.terminated) or bool(state.truncated)):
        turn = int(state.current_player)
        say(text(state, "XO" if turn == begins else "OX"))
        legal = np.nonzero(np.asarray(state.legal_action_mask))[0]
        if turn == person:
            action = None
            while action is None:
                try:
                    typed = ask("your move: ").strip().lower()
                except EOFError:
                    typed = "q"
                if typed in ("q", "quit"):
                    return None
                action = move_of(typed, player.game, state)
                if action is None or action not in legal:
                    named = ", ".join(name_of(int(a), player.game) for a in legal[:20])
                    more = " ..." if len(legal) > 20 else ""
                    say(f"{typed!r} is no legal move; these are: {named}{more}")
                    action = None
        else:
            thought = player.think(jax.tree.map(lambda x: np.asarray(x)[None], state))
            action = int(thought.action[0])
            if trees is not None:
                path = trees / f"move-{moves + 1:02d}.svg"
                path.write_text(svg(thought.nodes[0], lambda action: name_of(action, player.game)))
                say(f"the search's tree: {path}")
            say(_remark(thought, action, player.game))
        state, moves = step(state, action), moves + 1
    say(text(state, "XO" if int(state.current_player) == begins else "OX"))
    outcome = int(np.asarray(state.rewards)[person])
    say({1: "You have won.", 0: "A draw.", -1: "The agent has won."}[outcome])
    return outcome


def text(state: Any, marks: str) -> str:
    """Returns a board as text.

    Args:
        state: a pgx state.
        marks: the marks of the player to move and of the other player.
    """
    planes = np.asarray(state.observation)
    height, width = planes.shape[:2]
    lines = ["   " + " ".join(COLUMNS[:width])]
    for row in range(height):
        cells = [marks[0] if own else marks[1] if other else "." for own, other, *_ in planes[row]]
        lines.append(f"{row + 1:2d} " + " ".join(cells))
    return "\n".join(lines)


def move_of(typed: str, game: str, state: Any) -> int | None:
    """Returns the move with this name; None if there is none."""
    names = {name_of(action, game): action for action in range(len(state.legal_action_mask))}
    return names.get(typed)


def _example(game: str) -> str:
    return "columns, as d" if game == "connect_four" else "fields, as b2"


def _remark(thought: Thought, action: int, game: str) -> str:
    said = f"the agent plays {name_of(action, game)}"
    if not thought.visits.size:
        return f"{said}."
    lines = [f"{said}; it expects {thought.value[0]:+.2f}.", "  move  visits  prior  value"]
    visits, prior, values = thought.visits[0], thought.prior[0], thought.action_values[0]
    for a in np.lexsort((np.arange(len(visits)) != action, -visits))[:4]:
        if visits[a] > 0:
            lines.append(f"  {name_of(int(a), game):<4}  {visits[a]:>6.0%}  {prior[a]:>5.0%}  {values[a]:+.2f}")
    return "\n".join(lines)
