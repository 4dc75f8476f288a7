"""An ablation of Rainbow on a MinAtar game or on catch, after Hessel et al. 2018, figure 3: Rainbow, Rainbow without
each of its six parts, and DQN; `python -m benchmarks.learning.ablation`.
"""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from acme_ext import envs
from acme_ext.errors import UsageError, nearest
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.utils import files, loggers
from acme_ext.utils.rundir import RunDirectory
from benchmarks.learning import outcomes
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome
from benchmarks.learning.settings import Setting
from benchmarks.shared import command

REMOVED: dict[str, dict[str, str]] = {
    "no-double": {"double": "false"},
    "no-dueling": {"dueling": "false"},
    "no-priority": {"replay.prioritized": "false"},
    "no-multi-step": {"replay.n_step": "1"},
    "no-distribution": {"distribution": "none"},
    "no-noisy": {"noisy": "false"},
}
"""Name of the removed part -> the config fields that remove it."""

VARIANTS = ("rainbow", *REMOVED, "dqn")
CATCH = "catch"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code, which is 0 or an exit code of `benchmarks.learning`."""
    options = _parser().parse_args(arguments)
    return command.run("benchmarks.learning.ablation", lambda: _main(options))


def settings(game: str) -> dict[str, Setting]:
    """Returns the settings of all variants on a MinAtar game or on catch, by the names of their run folders.

    These are the agents' defaults, and MinAtar's presets. A run on catch takes minutes, one on MinAtar hours.
    """
    steps, every = (15_000, 1_500) if game == CATCH else (300_000, 15_000)
    rainbow, dqn = (
        Setting(agent, _environment(game), steps, 8, eval_every=every, eval_episodes=50) for agent in ("rainbow", "dqn")
    )
    made = {"rainbow": rainbow}
    for variant, fields in REMOVED.items():
        made[variant] = dataclasses.replace(rainbow, config={**rainbow.config, **fields})
    return {**made, "dqn": dqn}


def folder(variant: str, game: str) -> str:
    """Returns the name of a variant's run folder."""
    return f"ablation-{game}-{variant}"


def _environment(game: str) -> str:
    return "bsuite:catch/0" if game == CATCH else f"minatar:{game}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.ablation",
        description="Compares Rainbow, Rainbow without each of its six parts, and DQN, on a MinAtar game or on catch. "
        "Finished runs are not run again; stopped runs are resumed.",
    )
    parser.add_argument("--game", default="breakout", metavar="NAME", help="a MinAtar game, or catch (%(default)s)")
    command.add(parser, "jobs", "fresh", seeds=[0, 1, 2], steps="environment steps", runs=learning.RUNS)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), metavar="NAME", help=", ".join(VARIANTS))
    return parser


def _main(options: argparse.Namespace) -> int:
    for variant in options.variants:
        if variant not in VARIANTS:
            raise UsageError(f"there is no variant {variant!r}: {nearest(variant, VARIANTS)}")
    if options.jobs < 1 or (options.steps is not None and options.steps < 1):
        raise UsageError("--jobs and --steps must be at least 1.")
    for name in ("seeds", "variants"):
        if len(set(getattr(options, name))) < len(getattr(options, name)):
            raise UsageError(f"--{name} lists a value twice.")
    envs.check_environment(_environment(options.game))
    out = options.out or (learning.RESULTS if options.steps is None else options.runs)
    files.make_writable_folder(out)

    made = settings(options.game)
    if options.steps is not None:
        made = {variant: dataclasses.replace(setting, steps=options.steps) for variant, setting in made.items()}
    experiments = {}
    for variant in options.variants:
        runs, setting = options.runs / folder(variant, options.game), made[variant]
        experiments[variant] = [setting.experiment(s, setting.steps, runs / f"seed-{s}") for s in options.seeds]
    named = {f"{variant}, seed {e.seed}": e for variant, of_seeds in experiments.items() for e in of_seeds}
    # All variants are run in the same way, so any of the settings can be given.
    if code := learning.run_all(made["rainbow"], named, options.jobs, fresh=options.fresh):
        return code

    found = {variant: [outcomes.read(e, 1) for e in of_seeds] for variant, of_seeds in experiments.items()}
    name = "ablation" if options.game == "breakout" else f"ablation-{options.game}"
    print("written:", *write(out / name, options.game, experiments, found))
    if faults := [f"{v} seed {o.seed}: {o.fault}" for v, of_seeds in found.items() for o in of_seeds if o.fault]:
        print("; ".join(faults))
        return 1
    return 0


def write(
    out: pathlib.Path,
    game: str,
    experiments: Mapping[str, Sequence[Experiment]],
    found: Mapping[str, Sequence[Outcome]],
) -> list[pathlib.Path]:
    """Writes the page and the learning curves of all variants to `out` with file extensions; returns the paths."""
    from acme_ext.utils import plots

    rundirs = {v: [RunDirectory.open(e.directory) for e in of_seeds] for v, of_seeds in experiments.items()}
    figure = plots.learning_curves(rundirs, out.with_suffix(".png"))
    page = out.with_suffix(".md")
    (seeds,) = {len(of_seeds) for of_seeds in found.values()}
    (steps,) = {e.steps for of_seeds in experiments.values() for e in of_seeds}
    parts = ", all of it and without each of its six parts" if set(found) == set(VARIANTS) else ""
    command = "python -m benchmarks.learning.ablation" + ("" if game == "breakout" else f" --game {game}")
    command += "" if steps == settings(game)["rainbow"].steps else f" --steps {steps}"
    command += "" if parts else f" --variants {' '.join(found)}"
    command += f" --seeds {' '.join(str(e.seed) for e in next(iter(experiments.values())))}"
    numbers, unit = ("its own defaults", "steps") if game == CATCH else ("the same numbers otherwise", "frames")
    lines = [
        f"# {out.name}",
        "",
        f"Rainbow on `{_environment(game)}`{parts}, and DQN with {numbers}: "
        f"{steps:,} {unit}, {seeds} {'seed' if seeds == 1 else 'seeds'}. Made by `{command}`.",
        "",
        "The final return is the mean of a seed's last evaluation, greedy and without noise, on environments and seeds "
        "of its own; the return on the way is the mean of its evaluations until then.",
        "",
        "| variant | final return, mean of the seeds | least seed | greatest seed | on the way | wall time a seed, s |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for variant, of_seeds in found.items():
        scores = np.array([o.score for o in of_seeds])
        on_the_way = np.mean([_mean_evaluation(run) for run in rundirs[variant]])
        wall = np.mean([o.wall_time_s for o in of_seeds])
        cells = (f"{scores.mean():.4g}", f"{scores.min():.4g}", f"{scores.max():.4g}", f"{on_the_way:.4g}")
        lines.append(f"| {variant} | {' | '.join(cells)} | {wall:.0f} |")
    lines += ["", f"![learning curves]({figure.name})", ""]
    facts = outcomes.machine([o for of_seeds in found.values() for o in of_seeds])
    lines.append(", ".join(f"{name} {value}" for name, value in facts.items()) + ".")
    files.write_text(page, "\n".join(lines) + "\n")
    return [page, figure]


def _mean_evaluation(run: RunDirectory) -> float:
    return float(np.mean(loggers.read_csv(loggers.csv_path(run, "evaluator"))["episode_return_mean"]))


if __name__ == "__main__":
    sys.exit(main())
