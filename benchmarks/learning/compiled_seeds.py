"""Compares seeds in one compiled program with the same setting in one process:
`python -m benchmarks.learning.compiled_seeds`.
"""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

from acme_ext import launch
from acme_ext.errors import UsageError, nearest
from acme_ext.utils import files
from benchmarks.learning import outcomes
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome
from benchmarks.learning.settings import SETTINGS
from benchmarks.shared import command

PAIRS = {
    "ppo-cartpole": "jax:CartPole-v1",
    "impala-cartpole": "jax:CartPole-v1",
    "dqn-cartpole": "jax:CartPole-v1",
    "r2d2-catch": "jax:catch",
    "sac-pendulum": "jax:Pendulum-v1",
}
"""Name of a setting of `benchmarks.learning` -> the same environment in JAX."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code: 0, or 2 for a usage error."""
    options = _parser().parse_args(arguments)
    return command.run("benchmarks.learning.compiled_seeds", lambda: _main(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.compiled_seeds",
        description=f"{__doc__} The results in one process are those that `benchmarks.learning` has written.",
    )
    parser.add_argument(
        "--only", nargs="+", default=list(PAIRS), metavar="NAME", help=f"settings: {', '.join(PAIRS)} (all)"
    )
    parser.add_argument(
        "--seeds", type=int, default=10, metavar="N", help="number of seeds from 0 on, in one program (%(default)s)"
    )
    command.add(parser, steps="environment steps", runs=learning.RUNS)
    return parser


def _main(options: argparse.Namespace) -> int:
    for name in options.only:
        if name not in PAIRS:
            raise UsageError(f"there is no pair {name!r}: {nearest(name, PAIRS)}")
    if options.seeds < 1 or (options.steps is not None and options.steps < 1):
        raise UsageError("--seeds and --steps must be at least 1.")
    out = options.out or (learning.RESULTS if options.steps is None else options.runs)
    files.make_writable_folder(out)
    path = out / "compiled-seeds.json"
    for name in options.only:
        setting = SETTINGS[name]
        steps = options.steps or setting.steps
        experiment = setting.experiment(0, steps, options.runs / f"compiled-seeds-{name}")
        experiment = dataclasses.replace(experiment, environment=PAIRS[name])
        results = launch.run(experiment, launch.Compiled(seeds=options.seeds), quiet=True).seeds
        found = [
            outcomes.read(dataclasses.replace(experiment, seed=seed, run_dir=str(result.run_dir)), 1)
            for seed, result in enumerate(results)
        ]
        written = files.read_json(path) if path.is_file() else {}
        entry = {"environment": PAIRS[name], "steps": steps, **_summary(found), "machine": outcomes.machine(found)}
        written[name] = entry
        files.write_json(path, written)
    print("\n".join(table(path, learning.RESULTS / learning.FILE)))
    print("written:", path)
    return 0


def _summary(found: Sequence[Outcome]) -> dict[str, list[float]]:
    """Returns the seeds' results, as a list for each field."""
    return {
        "score": [round(o.score, 4) for o in found],
        "area": [round(float(np.mean(o.evaluations["episode_return_mean"])), 4) for o in found],
    }


def table(path: pathlib.Path, results: pathlib.Path) -> list[str]:
    """Returns the lines of the table of `path`, compared with single processes' results in `results`.

    `results` is a file of `benchmarks.learning`. Its results are left out if they are of another budget than the
    compiled seeds'. The table has the mean, the minimum and the maximum over seeds, for the final return and for the
    mean of all evaluations during training.
    """
    lines = [
        "| setting | steps | kind of run | seeds "
        "| final return | least | greatest | all evaluations | least | greatest |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    single = outcomes.load(results)
    for name, compiled in files.read_json(path).items():
        rows = {"compiled": compiled}
        if name in single and all(_is_of_budget(seed, compiled["steps"]) for seed in single[name].seeds):
            rows["one process"] = _summary(single[name].seeds)
        for world, row in rows.items():
            cells = [f"{of(row[field]):.4g}" for field in ("score", "area") for of in (np.mean, np.min, np.max)]
            lines.append(f"| {name} | {compiled['steps']:,} | {world} | {len(row['score'])} | {' | '.join(cells)} |")
    return lines


def _is_of_budget(outcome: Outcome, steps: int) -> bool:
    """Whether a run took `steps` environment steps; the last ones of several environments may be more."""
    return steps <= outcome.environment_steps <= 1.05 * steps


if __name__ == "__main__":
    sys.exit(main())
