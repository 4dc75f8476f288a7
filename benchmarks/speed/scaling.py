"""`python -m benchmarks.speed.scaling`: compares an agent with 1, 2 and 4 actors, by environment steps and by time.

Each environment step also sleeps, which takes time but no core, like a simulator on another machine. So actors overlap
on any number of cores. With `--sleep-ms 0`, steps only use CPU time, and the results depend on this machine's cores.
"""

import argparse
import csv
import dataclasses
import pathlib
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np

from acme_ext import builders, envs, launch
from acme_ext.commands import common
from acme_ext.config.assignments import configure_builder, split_assignments
from acme_ext.errors import UsageError
from acme_ext.utils import files, loggers, plots
from acme_ext.utils.rundir import RunDirectory
from benchmarks.learning import run as learning
from benchmarks.shared import command, report

RESULTS = pathlib.Path(__file__).parents[1] / "results"
RUNS = pathlib.Path("runs") / "benchmarks" / "scaling"

_DEFAULT = ("dqn", "gym:CartPole-v1")
_BARS = {"gym:CartPole-v1": 475.0}
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
_POINTS = 200  # points of an interpolated curve


@dataclasses.dataclass(frozen=True)
class Slow:
    """Makes environments whose steps take `sleep_s` more seconds, except in evaluations."""

    environment: str
    options: Mapping[str, Any]
    sleep_s: float

    def __call__(self, seed: int, evaluation: bool) -> dm_env.Environment:
        environment = envs.make_single(self.environment, seed=seed, evaluation=evaluation, **self.options)
        return environment if evaluation else _Sleeping(environment, self.sleep_s)


class _Sleeping(dm_env.Environment):
    def __init__(self, environment: dm_env.Environment, sleep_s: float):
        self._environment, self._sleep_s = environment, sleep_s

    def reset(self) -> dm_env.TimeStep:
        return self._environment.reset()

    def step(self, action: Any) -> dm_env.TimeStep:
        time.sleep(self._sleep_s)
        return self._environment.step(action)

    def observation_spec(self) -> Any:
        return self._environment.observation_spec()

    def action_spec(self) -> Any:
        return self._environment.action_spec()

    def reward_spec(self) -> Any:
        return self._environment.reward_spec()

    def discount_spec(self) -> Any:
        return self._environment.discount_spec()

    def close(self) -> None:
        self._environment.close()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The results of a run."""

    actors: int
    seed: int
    steps: np.ndarray  # [E] environment steps of the evaluations
    seconds: np.ndarray  # [E] from the first step until those steps were taken
    returns: np.ndarray  # [E] mean returns
    rate: float  # environment steps per second, without the first tenth of the steps

    def reached(self, bar: float) -> tuple[float, float]:
        """Returns the steps and seconds of the first evaluation that reached the bar; both infinite if none did."""
        found = np.nonzero(self.returns >= bar)[0]
        return (self.steps[found[0]], self.seconds[found[0]]) if len(found) else (np.inf, np.inf)


def read(actors: int, seed: int, rundir: RunDirectory) -> Outcome:
    """Reads the results of a finished run."""
    evaluations = loggers.read_csv(loggers.csv_path(rundir, "evaluator"))
    episodes = loggers.read_csv(loggers.csv_path(rundir, "actor"))
    steps, seconds = episodes["environment_steps"], episodes["wall_time_s"] - episodes["wall_time_s"][0]
    steady = steps >= steps[-1] / 10
    rate = (steps[-1] - steps[steady][0]) / (seconds[-1] - seconds[steady][0])
    # The log begins with the end of an episode. The steps before it were about as fast as the later ones.
    steps, seconds = np.array([0, *steps]), np.array([0.0, *(seconds + steps[0] / rate)])
    # An evaluation is logged after it has ended, but the time that counts is when its steps had been taken.
    when = np.interp(evaluations["environment_steps"], steps, seconds)
    return Outcome(
        actors, seed, evaluations["environment_steps"], when, evaluations["episode_return_mean"], float(rate)
    )


def draw(outcomes: Sequence[Outcome], title: str, path: pathlib.Path) -> None:
    """Plots two panels, with a line for each number of actors: the mean over seeds, and a band for the range."""
    figure = plots.new_figure(9, 3.8, dpi=200)
    panels = dict(zip(("steps", "seconds"), figure.subplots(1, 2, sharey=True), strict=True))
    for i, (actors, members) in enumerate(_by_actors(outcomes).items()):
        label, colour = f"{actors} actor{'s' if actors > 1 else ''}", _COLOURS[i % len(_COLOURS)]
        for name, axes in panels.items():
            grid, values = _on_one_grid([(getattr(o, name), o.returns) for o in members])
            axes.plot(grid, values.mean(0), color=colour, label=label)
            if len(members) > 1:
                axes.fill_between(grid, values.min(0), values.max(0), color=colour, alpha=0.18, linewidth=0)
    seeds = len(outcomes) // len(_by_actors(outcomes))
    band = f"mean of {seeds} seeds; band: least to greatest" if seeds > 1 else "one seed"
    panels["steps"].set(xlabel="environment steps of all actors", ylabel="return of an evaluation")
    panels["seconds"].set(xlabel="time (s)")
    for axes in panels.values():
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    panels["steps"].legend(loc="upper left", frameon=False)
    figure.suptitle(f"{title} ({band})", fontsize=10)
    plots.save(figure, path)


def page(outcomes: Sequence[Outcome], bar: float, described: str, name: str) -> str:
    """Returns the results as Markdown; figures are medians over seeds."""
    groups = _by_actors(outcomes)
    first = next(iter(groups))
    rates = {actors: float(np.median([o.rate for o in members])) for actors, members in groups.items()}
    against_first = f"against {first}"
    header = (
        "actors",
        "steps/s",
        against_first,
        "mean return",
        "at the bar",
        "steps to it",
        "time to it",
        against_first,
    )
    lines = [
        "# The same agent with more actors",
        "",
        described,
        "",
        f"The bar is a return of {bar:.4g}; steps and time are those of the first evaluation that reached it, from the",
        "first step on. The mean return is that of all evaluations. Of several seeds, each figure is the median, in",
        "brackets the least and the greatest.",
        "",
        "| " + " | ".join(header) + " |",
        "|" + "--:|" * len(header),
    ]
    base = float(np.median([o.reached(bar)[1] for o in groups[first]]))
    for actors, members in groups.items():
        steps, seconds = np.array([o.reached(bar) for o in members]).T
        time_to = float(np.median(seconds))
        against = f"{time_to / base:.2f}" if np.isfinite(time_to) and 0 < base < np.inf else ""
        cells = (
            str(actors),
            _spread([o.rate for o in members], ",.0f"),
            f"{rates[actors] / rates[first]:.2f}",
            _spread([float(o.returns.mean()) for o in members], ".4g"),
            f"{np.isfinite(seconds).sum()} of {len(members)}",
            _spread(steps, ",.0f"),
            _spread(seconds, ",.0f", " s"),
            against,
        )
        lines.append("| " + " | ".join(cells) + " |")
    facts = ", ".join(f"{key} {value}" for key, value in report.machine(after=True).items())
    lines += ["", f"![curves]({name}.png)", "", f"Every evaluation: [{name}.csv]({name}.csv).", "", f"{facts}.", ""]
    return "\n".join(lines)


def _spread(values: Sequence[float] | np.ndarray, form: str, unit: str = "") -> str:
    """Returns the median of values, and their range if there are several; a dash if they are infinite."""

    def say(value: float) -> str:
        return f"{value:{form}}{unit}" if np.isfinite(value) else "-"

    middle = say(float(np.median(values)))
    return middle if len(values) == 1 else f"{middle} [{say(min(values))}, {say(max(values))}]"


def _by_actors(outcomes: Sequence[Outcome]) -> dict[int, list[Outcome]]:
    return {n: [o for o in outcomes if o.actors == n] for n in dict.fromkeys(o.actors for o in outcomes)}


def _on_one_grid(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Interpolates curves on their common range; returns the grid `[points]` and the values `[curves, points]`."""
    start, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.linspace(start, end, _POINTS)
    return grid, np.stack([np.interp(grid, x, y) for x, y in curves])


def _bar(outcomes: Sequence[Outcome], environment: str) -> float:
    """Returns the environment's bar.

    For an unknown environment, it is at nine tenths of the way from the mean of the first evaluations to the highest
    mean return that all numbers of actors reached.
    """
    if environment in _BARS:
        return _BARS[environment]
    start = float(np.mean([o.returns[0] for o in outcomes]))
    means = [
        _on_one_grid([(o.steps, o.returns) for o in members])[1].mean(0) for members in _by_actors(outcomes).values()
    ]
    return start + 0.9 * (min(float(mean.max()) for mean in means) - start)


def _write_csv(outcomes: Sequence[Outcome], path: pathlib.Path) -> None:
    with files.replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("actors", "seed", "environment_steps", "seconds", "episode_return_mean"))
        for o in outcomes:
            for steps, seconds, value in zip(o.steps, o.seconds, o.returns, strict=True):
                writer.writerow((o.actors, o.seed, int(steps), round(float(seconds), 2), float(value)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.scaling",
        description="Runs an agent as programs with different numbers of actors, and writes a table and a figure. "
        "Finished runs are not run again; stopped runs are resumed.",
    )
    parser.add_argument("--agent", default=_DEFAULT[0], help="name of the agent (%(default)s)")
    parser.add_argument("--environment", default=_DEFAULT[1], metavar="NAME", help="environment (%(default)s)")
    common.add_set(parser, "a field of the agent's config")
    common.add_env_set(parser)
    parser.add_argument(
        "--actors", type=int, nargs="+", default=[1, 2, 4], metavar="N", help="numbers of actors (1 2 4)"
    )
    command.add(parser, "fresh", seeds=[0, 1, 2], runs=RUNS)
    parser.add_argument("--steps", type=int, default=60_000, metavar="N", help="environment steps (%(default)s)")
    parser.add_argument("--num-envs", type=int, default=1, metavar="N", help="environments per actor (%(default)s)")
    parser.add_argument(
        "--sleep-ms",
        type=float,
        default=3.0,
        metavar="MS",
        help="milliseconds of sleep per environment step (%(default)s)",
    )
    parser.add_argument("--eval-every", type=int, metavar="N", help="steps between evaluations (a twentieth of all)")
    parser.add_argument(
        "--eval-episodes", type=int, default=10, metavar="N", help="episodes of an evaluation (%(default)s)"
    )
    parser.add_argument("--bar", type=float, metavar="R", help="return to reach; the table shows the time until then")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code.

    0: done; 1: a run failed; 2: a usage error; 128 + n: signal n stopped it, and the same command resumes it.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(arguments)
    return command.run("benchmarks.speed.scaling", lambda: _main(options, arguments))


def _main(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    command.check_seeds(options.seeds)
    if len(set(options.actors)) < len(options.actors) or min(options.actors) < 1:
        raise UsageError("--actors must list different numbers, each at least 1.")
    command.check_least(options, "steps", "num_envs", "eval_episodes")
    out = options.out or RESULTS
    files.make_writable_folder(out)
    label = f"{options.agent}-{re.sub(r'[^A-Za-z0-9.]+', '-', options.environment)}"
    outcomes = []
    # A seed's runs follow each other, so that the machine's other work is about the same for all of them.
    for seed in options.seeds:
        for actors in options.actors:
            run_dir = options.runs / label / f"sleep-{options.sleep_ms:g}" / f"actors-{actors}" / f"seed-{seed}"
            experiment = _experiment(options, seed, run_dir)
            if options.fresh or not learning.finished(experiment):
                print(f"{actors} actors, seed {seed}: {run_dir}", flush=True)
                result = launch.run(experiment, launch.Processes(actors=actors), fresh=options.fresh)
                if result.stopped_by is not None:
                    return 128 + result.stopped_by
            outcomes.append(read(actors, seed, RunDirectory.open(run_dir)))
    bar = options.bar if options.bar is not None else _bar(outcomes, options.environment)
    step = f"whose step takes {options.sleep_ms:g} ms more" if options.sleep_ms else "pure CPU"
    described = (
        f"{options.agent} on {options.environment}, {step}, {options.steps:,} environment steps, "
        f"num_envs={options.num_envs}, {len(options.seeds)} seed{'s' if len(options.seeds) > 1 else ''}, actors as "
        f"processes on one machine: `{' '.join(['python -m benchmarks.speed.scaling', *arguments])}`."
    )
    plain = (options.agent, options.environment) == _DEFAULT
    name = "scaling" + ("" if plain else f"-{label}") + ("" if options.sleep_ms else "-cpu")
    text = page(outcomes, bar, described, name)
    _write_csv(outcomes, out / f"{name}.csv")
    draw(outcomes, f"{options.agent} on {options.environment}", out / f"{name}.png")
    files.write_text(out / f"{name}.md", text)
    print(text)
    return 0


def _experiment(options: argparse.Namespace, seed: int, run_dir: pathlib.Path) -> launch.Experiment:
    builders.check_agent_name(options.agent)
    environment_options = common.environment_options(options)
    envs.check_environment(options.environment, **environment_options)
    builder = builders.load(options.agent)().for_environment(options.environment)
    builder = configure_builder(builder, split_assignments(options.set))
    sleep_s = options.sleep_ms / 1000
    return launch.Experiment(
        builder,
        Slow(options.environment, environment_options, sleep_s) if sleep_s else options.environment,
        steps=options.steps,
        seed=seed,
        num_envs=options.num_envs,
        environment_options={} if sleep_s else environment_options,
        evaluation=launch.Evaluation(
            every=options.eval_every or max(1, options.steps // 20), episodes=options.eval_episodes
        ),
        run_dir=str(run_dir),
    )


if __name__ == "__main__":
    sys.exit(main())
