"""Measures AlphaZero's playing strength at a board game during training: `python -m benchmarks.learning.strength`."""

import argparse
import dataclasses
import pathlib
import shutil
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from acme_ext import builders, launch
from acme_ext.commands import common, tournament
from acme_ext.config.assignments import configure_builder, split_assignments
from acme_ext.errors import UsageError
from acme_ext.utils import files, loggers, plots
from acme_ext.utils.rundir import RunDirectory
from benchmarks.learning.run import RESULTS, RUNS, finished
from benchmarks.shared import command, report


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code, as `benchmarks.learning` does."""
    options = _parser().parse_args(arguments)
    return command.run("benchmarks.learning.strength", lambda: _main(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.strength",
        description=f"{__doc__} A compiled run is copied at regular intervals, and the copies and the opponents play a "
        "round-robin tournament. The same command resumes a stopped run.",
    )
    parser.add_argument("--game", default="connect_four", help="name of the game in board:GAME (%(default)s)")
    parser.add_argument("--steps", type=int, default=2_000_000, help="moves of self-play (%(default)s)")
    parser.add_argument("--parts", type=int, default=5, metavar="N", help="number of copies (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (%(default)s)")
    parser.add_argument(
        "--num-envs", type=int, default=32, metavar="N", help="games of self-play at the same time (%(default)s)"
    )
    common.add_set(parser, "another value for a field of AlphaZero's config")
    parser.add_argument(
        "--opponents",
        nargs="+",
        default=["random", "mcts:100", "mcts:1000"],
        metavar="NAME",
        help="other players (%(default)s)",
    )
    parser.add_argument(
        "--games", type=int, default=200, metavar="N", help="games of each pair of players, on both sides (%(default)s)"
    )
    parser.add_argument(
        "--opening-moves", type=int, default=2, metavar="N", help="random moves at the start of a game (%(default)s)"
    )
    command.add(parser, runs=RUNS, out=RESULTS)
    return parser


def _main(options: argparse.Namespace) -> int:
    if options.parts < 1 or options.steps < options.parts or options.games < 1:
        raise UsageError("--parts and --games must be at least 1, and --steps at least --parts.")
    files.make_writable_folder(options.out)
    name = f"strength-{options.game}"
    experiment = launch.Experiment(
        configure_builder(builders.AlphaZero(), split_assignments(options.set)),
        f"board:{options.game}",
        seed=options.seed,
        num_envs=options.num_envs,
        evaluation=launch.Evaluation(every=0, final_episodes=20, num_envs=20),
        run_dir=str(options.runs / f"{name}-s{options.seed}"),
    )
    seconds: dict[str, float] = {}  # training time, by the copy's folder
    for part in range(1, options.parts + 1):
        steps = options.steps * part // options.parts
        copy = pathlib.Path(f"{experiment.directory}-{steps}")
        if not finished(dataclasses.replace(experiment, steps=steps, run_dir=str(copy))):
            result = launch.run(dataclasses.replace(experiment, steps=steps), launch.Compiled(), quiet=True)
            if result.stopped_by:
                return 128 + result.stopped_by
            half = copy.with_name(f"{copy.name}.part")
            shutil.rmtree(half, ignore_errors=True)
            shutil.copytree(result.run_dir, half)
            half.rename(copy)
        spent = loggers.read_csv(loggers.csv_path(RunDirectory.open(copy), "evaluator"))["wall_time_s"]
        seconds[str(copy)] = float(spent[-1])
        print(f"{steps:,} moves in {seconds[str(copy)]:,.0f} s", flush=True)
    held = tournament.hold([*seconds, *options.opponents], options.games, options.opening_moves, options.seed)
    moves = [options.steps * part // options.parts for part in range(1, options.parts + 1)]
    held = held._replace(names=[*(f"{count:,} moves" for count in moves), *options.opponents])
    _draw(held, list(seconds.values()), options.out / f"{name}.png")
    text = page(held, list(seconds.values()), options, report.machine(after=True))
    (options.out / f"{name}.md").write_text(text)
    print(text)
    return 0


def page(held: tournament.Held, seconds: Sequence[float], options: argparse.Namespace, facts: Mapping) -> str:
    """Returns the page as Markdown.

    Args:
        held: the tournament of the copies in the order of their training, followed by the opponents.
        seconds: training time of each copy.
        options: the command line's options.
        facts: facts about the machine.
    """
    last = len(seconds) - 1
    changed = "".join(f" --set {text}" for text in options.set)
    named = ("game", "steps", "parts", "seed", "set")
    rest = argparse.Namespace(**{name: value for name, value in vars(options).items() if name not in named})
    others = command.line(_parser(), rest).removeprefix("python -m benchmarks.learning.strength")
    lines = [
        f"# AlphaZero's strength at {held.game.replace('_', ' ')}",
        "",
        f"`python -m benchmarks.learning.strength --game {options.game} --steps {options.steps} --parts {options.parts}"
        f"{others} --seed {options.seed}{changed}`: one compiled run of "
        f"{options.num_envs} games at once with AlphaZero's defaults{' but for these' if options.set else ''}, "
        f"copied after {', '.join(f'{spent:,.0f}' for spent in seconds)} s, evaluations included. Each pair of players "
        f"plays {options.games} games, as many on either side, whose first {options.opening_moves} moves are drawn at "
        "random. `mcts:N` is open_spiel's tree search with N simulations a move.",
        "",
        f"| {held.names[last]} against | won | drawn | lost | share of the points |",
        "|---|--:|--:|--:|--:|",
    ]
    for i, opponent in enumerate(held.names[last + 1 :], last + 1):
        own = held.outcomes[last, i]
        won, drawn, lost = (int(np.sum(own == outcome)) for outcome in (1, 0, -1))
        lines.append(f"| {opponent} | {won} | {drawn} | {lost} | {(won + drawn / 2) / len(own):.3f} |")
    said = ", ".join(f"{name} {value}" for name, value in facts.items())
    return "\n".join(
        [*lines, "", *held.table(), "", f"![Elo by training time](strength-{held.game}.png)", "", f"{said}.\n"]
    )


def _draw(held: tournament.Held, seconds: Sequence[float], path: pathlib.Path) -> None:
    figure = plots.new_figure(6, 3.6, dpi=120)
    axes, count = figure.subplots(), len(seconds)
    minutes, ratings = np.divide(seconds, 60), held.ratings[:count]
    low, high = held.intervals[:count].T
    axes.errorbar(
        minutes, ratings, yerr=np.abs([ratings - low, high - ratings]), fmt="o-", capsize=3, label="AlphaZero"
    )
    for place, (name, rating) in enumerate(zip(held.names[count:], held.ratings[count:], strict=True), 1):
        axes.axhline(rating, color=f"C{place}", linestyle="--", linewidth=1, label=name)
    axes.set(xlabel="minutes of training", ylabel="Elo, with intervals of 95%")
    axes.legend(fontsize="small")
    plots.save(figure, path)


if __name__ == "__main__":
    sys.exit(main())
