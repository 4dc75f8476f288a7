"""The commands `acme-ext play` and `acme-ext tournament`, for the agents of runs in board games."""

import argparse
import pathlib
from typing import Any

from acme_ext.commands import common


def add(commands: Any) -> None:
    """Adds the commands."""
    play = commands.add_parser(
        "play", help="play a board game against the agent of a run", description="Play against a run's agent."
    )
    play.add_argument("run", metavar="RUN", help="a run directory")
    play.add_argument("--second", action="store_true", help="let the agent make the first move")
    play.add_argument("--trees", metavar="DIR", help="a folder for drawings of the agent's search trees, as SVG files")
    play.set_defaults(command=_play)

    tournament = commands.add_parser(
        "tournament",
        help="let the agents of runs play a board game against each other",
        description="Play a round-robin tournament, in which players change sides after each game. Prints the results "
        "and Elo ratings with 95% confidence intervals, and draws a chart.",
    )
    tournament.add_argument(
        "players",
        nargs="+",
        metavar="PLAYER",
        help="run directories or checkpoints, or the opponents random, mcts:N, minimax or py:MODULE:FUNCTION",
    )
    common.add_count(tournament, "--games", "games of each pair (%(default)s)", default=40)
    tournament.add_argument(
        "--opening-moves", type=int, default=2, metavar="N", help="random moves at the start of a game (%(default)s)"
    )
    tournament.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (%(default)s)")
    tournament.add_argument("-o", "--output", default="tournament.png", metavar="FILE", help="the chart (%(default)s)")
    tournament.set_defaults(command=_tournament)


def _play(options: argparse.Namespace) -> int:
    from acme_ext.commands import play
    from acme_ext.launch.runs.players import RunPlayer

    trees = None if options.trees is None else pathlib.Path(options.trees)
    play.play(RunPlayer(options.run), person_begins=not options.second, trees=trees)
    return 0


def _tournament(options: argparse.Namespace) -> int:
    from acme_ext.commands import tournament
    from acme_ext.utils import plots

    chart = pathlib.Path(options.output)
    plots.check_format(chart)
    held = tournament.hold(options.players, options.games, options.opening_moves, options.seed)
    print("\n".join(held.table()))
    print(tournament.draw(held, chart))
    return 0
