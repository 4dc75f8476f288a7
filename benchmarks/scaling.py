"""`python -m benchmarks.scaling`: the same agent with 1, 2 and 4 actors, against actor steps and against time.

The environment's step takes time without taking a core, as that of a simulator on another machine would: actors then
overlap on any number of cores. With `--sleep-ms 0` it is pure CPU, and shows what this machine's cores give.
"""

import argparse
import dataclasses
import pathlib
import time
from collections.abc import Sequence

import dm_env
import numpy as np

from acme_ext import envs, launch
from acme_ext.builders import DQN
from acme_ext.utils import loggers
from acme_ext.utils.rundir import RunDirectory

_RESULTS = pathlib.Path(__file__).parent / "results"
_BAR = 475.0  # the return whose first evaluation is timed


@dataclasses.dataclass(frozen=True)
class SlowCartPole:
    """Makes CartPoles whose steps take `sleep_s` seconds each."""

    sleep_s: float

    def __call__(self, seed: int, evaluation: bool) -> dm_env.Environment:
        environment = envs.make_single("gym:CartPole-v1", seed=seed, evaluation=evaluation)
        return environment if evaluation or not self.sleep_s else _Slow(environment, self.sleep_s)


class _Slow(dm_env.Environment):
    def __init__(self, environment: dm_env.Environment, sleep_s: float):
        self._environment, self._sleep_s = environment, sleep_s

    def reset(self) -> dm_env.TimeStep:
        return self._environment.reset()

    def step(self, action) -> dm_env.TimeStep:
        time.sleep(self._sleep_s)
        return self._environment.step(action)

    def observation_spec(self):
        return self._environment.observation_spec()

    def action_spec(self):
        return self._environment.action_spec()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a number of actors came to."""

    actors: int
    steps: np.ndarray  # [E] environment steps of the evaluations
    seconds: np.ndarray  # [E] since the first step
    returns: np.ndarray  # [E] mean returns
    rate: float  # environment steps per second, from the first evaluation to the last

    def reached(self) -> str:
        """The steps and seconds at which an evaluation first reached the bar."""
        found = np.nonzero(self.returns >= _BAR)[0]
        return f"{self.steps[found[0]]:,} | {self.seconds[found[0]]:.0f} s" if len(found) else "- | -"


def measure(actors: int, options: argparse.Namespace) -> Outcome:
    """Runs a program with so many actors."""
    run_dir = pathlib.Path("runs/benchmarks/scaling") / f"sleep-{options.sleep_ms:g}" / f"actors-{actors}"
    experiment = launch.Experiment(
        DQN(),
        SlowCartPole(options.sleep_ms / 1000),
        steps=options.steps,
        seed=options.seed,
        evaluation=launch.Evaluation(every=max(1, options.steps // 16), episodes=10),
        run_dir=str(run_dir),
    )
    launch.run_program(experiment, launch.Topology(actors=actors), fresh=True)
    rundir = RunDirectory.open(run_dir)
    rows = loggers.read_csv(loggers.csv_path(rundir, "evaluator"))
    first = loggers.read_csv(loggers.csv_path(rundir, "actor"))  # time counts from the first episode's end
    steps, seconds = rows["environment_steps"], rows["wall_time_s"] - first["wall_time_s"][0]
    # The last evaluation is made after the last step, so that its time isn't the actors'.
    rate = (steps[-2] - steps[0]) / (seconds[-2] - seconds[0])
    return Outcome(actors, steps, seconds, rows["episode_return_mean"], float(rate))


def draw(outcomes: Sequence[Outcome], path: pathlib.Path) -> None:
    """Draws the two panels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    for outcome, colour in zip(outcomes, ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"), strict=False):
        label = f"{outcome.actors} actor{'s' if outcome.actors > 1 else ''}"
        left.plot(outcome.steps, outcome.returns, color=colour, label=label, marker="o", markersize=3)
        right.plot(outcome.seconds, outcome.returns, color=colour, label=label, marker="o", markersize=3)
    left.set(xlabel="environment steps of all actors", ylabel="return of the greedy policy")
    right.set(xlabel="time (s)")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    left.legend(frameon=False)
    figure.savefig(path)


def page(outcomes: Sequence[Outcome], options: argparse.Namespace, command: str) -> str:
    """Returns the results as markdown."""
    base = outcomes[0].rate
    lines = [
        "# The same agent with more actors",
        "",
        f"DQN on CartPole-v1 whose step takes {options.sleep_ms:g} ms more, {options.steps:,} environment steps, seed "
        f"{options.seed}, actors as processes on one machine: `{command}`.",
        "",
        f"| actors | steps/s | against {outcomes[0].actors} | first evaluation at {_BAR:g} or more: steps | time |",
        "|---|---|---|---|---|",
        *(f"| {o.actors} | {o.rate:,.0f} | {o.rate / base:.2f} | {o.reached()} |" for o in outcomes),
        "",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints the table, and writes it and the figure to `benchmarks/results/`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=main.__doc__)
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--steps", type=int, default=40_000, metavar="N", help="environment steps (%(default)s)")
    parser.add_argument("--sleep-ms", type=float, default=3.0, metavar="MS", help="of a step (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=_RESULTS, metavar="DIR")
    options = parser.parse_args(arguments)
    outcomes = [measure(actors, options) for actors in options.actors]
    name = "scaling" if options.sleep_ms else "scaling-cpu"
    command = f"python -m benchmarks.scaling --steps {options.steps} --sleep-ms {options.sleep_ms:g}"
    options.out.mkdir(parents=True, exist_ok=True)
    text = page(outcomes, options, command)
    (options.out / f"{name}.md").write_text(text + f"\n![curves]({name}.png)\n")
    draw(outcomes, options.out / f"{name}.png")
    print(text)


if __name__ == "__main__":
    main()
