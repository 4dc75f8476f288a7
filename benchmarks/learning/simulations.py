"""Measures MuZero's returns by the number of simulations, with the search of Gumbel MuZero and of plain MuZero, and
with reanalysis: `python -m benchmarks.learning.simulations`.
"""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from acme_ext import builders, envs, launch
from acme_ext.commands import common
from acme_ext.config.assignments import configure_builder, split_assignments
from acme_ext.errors import UsageError
from acme_ext.utils import files, loggers, plots
from acme_ext.utils.rundir import RunDirectory
from benchmarks.learning import run as learning
from benchmarks.shared import command, report

BARS = {"jax:catch": 0.95, "jax:CartPole-v1": 475.0}
"""The bar for an evaluation's mean return, by environment."""

KINDS = {"Gumbel": "true", "MuZero": "false"}
"""Kind of search -> value of `search.gumbel`."""

USUAL = 16  # number of simulations in runs with reanalysis


@dataclasses.dataclass(frozen=True)
class Arm:
    """Runs that only differ in their seeds."""

    search: str  # a name in KINDS
    simulations: int
    reanalyze: float = 0.0

    def __str__(self) -> str:
        return f"{self.search}, {self.simulations}" + (f", reanalysis {self.reanalyze:g}" if self.reanalyze else "")

    @property
    def folder(self) -> str:
        """The name of the runs' folder."""
        return f"{self.search.lower()}-{self.simulations}" + (f"-{self.reanalyze:g}" if self.reanalyze else "")

    @property
    def config(self) -> dict[str, str]:
        """The arm's fields of MuZero's config."""
        fields = {"search.gumbel": KINDS[self.search], "search.simulations": str(self.simulations)}
        return {**fields, "reanalyze": str(self.reanalyze)} if self.reanalyze else fields


@dataclasses.dataclass(frozen=True)
class Found:
    """The results of an arm's seeds."""

    final: np.ndarray  # [seeds] mean return of the last evaluation
    on_the_way: np.ndarray  # [seeds] mean over all evaluations
    reached: np.ndarray  # [seeds] environment steps at the first evaluation that reaches the bar; NaN where none does
    seconds: float  # wall time of all seeds, which run in one program


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code, as `benchmarks.learning` does."""
    options = _parser().parse_args(arguments)
    return command.run("benchmarks.learning.simulations", lambda: _main(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.simulations",
        description=f"{__doc__} The runs are compiled, with all seeds of an arm in one program. "
        "Finished runs are not run again; stopped runs are resumed.",
    )
    parser.add_argument("--environment", default="jax:catch", choices=sorted(BARS), help="environment (%(default)s)")
    parser.add_argument("--steps", type=int, default=15_000, help="environment steps (%(default)s)")
    parser.add_argument(
        "--eval-every", type=int, default=1_000, metavar="N", help="steps between evaluations (%(default)s)"
    )
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="number of seeds, from --seed on (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="first seed (%(default)s)")
    for search in KINDS:
        told = f"numbers of simulations of {search}'s search (4 8 16 50)"
        parser.add_argument(f"--{search.lower()}", type=int, nargs="*", default=[4, 8, 16, 50], metavar="N", help=told)
    parser.add_argument(
        "--reanalyze",
        type=float,
        nargs="*",
        default=[0.5],
        metavar="SHARE",
        help=f"shares of reanalysis, with Gumbel and {USUAL} simulations (0.5)",
    )
    common.add_set(parser, "another value for a field of MuZero's config")
    command.add(parser, runs=learning.RUNS, out=learning.RESULTS)
    return parser


def _main(options: argparse.Namespace) -> int:
    if options.seeds < 1 or options.steps < options.eval_every or options.eval_every < 1:
        raise UsageError("--seeds and --eval-every must be at least 1, and --steps at least --eval-every.")
    for name in (*map(str.lower, KINDS), "reanalyze"):
        if len(set(getattr(options, name))) < len(getattr(options, name)):
            raise UsageError(f"--{name} lists a value twice.")
    if own := Arm("Gumbel", USUAL, 1.0).config.keys() & split_assignments(options.set):
        raise UsageError(f"--set names {', '.join(sorted(own))}, which --gumbel, --muzero and --reanalyze set.")
    envs.check_environment(options.environment)
    files.make_writable_folder(options.out)
    arms = [Arm(search, count) for search in KINDS for count in getattr(options, search.lower())]
    arms += [Arm("Gumbel", USUAL, share) for share in options.reanalyze if share]
    name = f"simulations-{options.environment.removeprefix('jax:')}"
    if not arms:
        raise UsageError("there is nothing to run: give numbers of simulations to --gumbel or --muzero.")
    # All are checked before the first one runs.
    experiments = {arm: _experiment(arm, options, options.runs / name) for arm in dict.fromkeys(arms)}
    found = {}
    for arm, experiment in experiments.items():
        each, code = learning.run_at_once(experiment, options.seeds)
        if code:
            return code
        found[arm] = read([one.directory for one in each], BARS[options.environment])
        print(f"{arm}: {np.mean(found[arm].final):.4g} after {found[arm].seconds:.0f} s", flush=True)
    draw(found, options.out / f"{name}.png")
    text = page(found, options, f"{name}.png", report.machine(after=True))
    files.write_text(options.out / f"{name}.md", text)
    print(text)
    return 0


def _experiment(arm: Arm, options: argparse.Namespace, runs: pathlib.Path) -> launch.Experiment:
    return launch.Experiment(
        configure_builder(_builder(options), arm.config),
        options.environment,
        steps=options.steps,
        seed=options.seed,
        num_envs=8,
        evaluation=launch.Evaluation(every=options.eval_every, final_episodes=20),
        run_dir=str(runs / arm.folder),
    )


def _builder(options: argparse.Namespace) -> builders.MuZero:
    """Returns the builder that all arms share."""
    return configure_builder(builders.MuZero().for_environment(options.environment), split_assignments(options.set))


def read(rundirs: Sequence[pathlib.Path], bar: float) -> Found:
    """Returns the results of finished runs, one for each seed."""
    curves = [loggers.read_csv(loggers.csv_path(RunDirectory.open(path), "evaluator")) for path in rundirs]
    final, way, reached = [], [], []
    for path, curve in zip(rundirs, curves, strict=True):
        returns, steps = curve["episode_return_mean"], curve["environment_steps"]
        final.append(RunDirectory.open(path).read_evaluation()["episode_return_mean"])
        way.append(returns.mean())
        good = np.nonzero(returns >= bar)[0]
        reached.append(steps[good[0]] if good.size else np.nan)
    seconds = max(float(curve["wall_time_s"][-1]) for curve in curves)
    return Found(np.array(final), np.array(way), np.array(reached), seconds)


def steps_to_bar(reached: np.ndarray) -> str:
    """Returns the mean number of steps after which seeds reached the bar, as text."""
    good = reached[~np.isnan(reached)]
    missing = "" if len(good) == len(reached) else f" ({len(good)} of {len(reached)})"
    return f"{good.mean():,.0f}{missing}" if len(good) else "none"


def page(found: Mapping[Arm, Found], options: argparse.Namespace, figure: str, facts: Mapping) -> str:
    """Returns the page as Markdown.

    Args:
        found: the results of each arm.
        options: the command line's options.
        figure: name of the figure's file.
        facts: facts about the machine.
    """
    seeds = f"{options.seeds} {'seed' if options.seeds == 1 else 'seeds'}"
    rate = _builder(options).config.replay.samples_per_insert
    lines = [
        f"# MuZero by simulations on {options.environment}",
        "",
        f"`{command.line(_parser(), options)}`: compiled runs of {options.steps:,} environment steps, 8 "
        f"environments, {seeds} of each row at once, MuZero's defaults but for what `--set` names, with "
        f"`replay.samples_per_insert={rate:g}`. An evaluation every {options.eval_every:,} steps, greedy and without "
        "noise, on environments of its own. The "
        "final return is that of the last evaluation, the return on the way the mean of all. The steps to the bar are "
        f"those at the first evaluation with a mean of at least {BARS[options.environment]:g}, the mean of the seeds "
        "that reached it.",
        "",
        "| search | simulations | reanalysis | final return, mean | least seed | on the way | least seed | to the bar "
        "| seconds |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for arm, of in found.items():
        cells = (
            arm.search,
            str(arm.simulations),
            f"{arm.reanalyze:g}",
            *(f"{value:.4g}" for values in (of.final, of.on_the_way) for value in (values.mean(), values.min())),
            steps_to_bar(of.reached),
            f"{of.seconds:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    said = ", ".join(f"{name} {value}" for name, value in facts.items())
    return "\n".join([*lines, "", f"![Returns by simulations]({figure})", "", f"{said}.\n"])


def draw(found: Mapping[Arm, Found], path: pathlib.Path) -> None:
    """Plots the returns, final and during training, by the number of simulations: means over seeds, and each seed."""
    figure = plots.new_figure(9, 3.6, dpi=120)
    for axes, name, title in zip(
        figure.subplots(1, 2), ("final", "on_the_way"), ("final return", "mean of all evaluations"), strict=True
    ):
        for place, search in enumerate(KINDS):
            arms = sorted((a for a in found if a.search == search and not a.reanalyze), key=lambda a: a.simulations)
            values = [getattr(found[arm], name) for arm in arms]
            counts = [arm.simulations for arm in arms]
            axes.plot(counts, [v.mean() for v in values], "o-", color=f"C{place}", label=search)
            for count, each in zip(counts, values, strict=True):
                axes.plot([count] * len(each), each, ".", color=f"C{place}", alpha=0.5)
        axes.set_xscale("log", base=2)
        ticks = sorted({arm.simulations for arm in found})
        axes.set_xticks(ticks, [str(count) for count in ticks])
        axes.minorticks_off()
        axes.set(xlabel="simulations", ylabel=title)
        axes.legend(fontsize="small")
    plots.save(figure, path)


if __name__ == "__main__":
    sys.exit(main())
