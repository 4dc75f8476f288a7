"""Measures an agent's scores on Atari games, compared with a human's: `python -m benchmarks.learning.atari AGENT`.

Episodes begin with up to 30 no-ops, and end after at most 108,000 frames (Mnih et al. 2015). With `--protocol machado`
there are no no-ops. Instead, actions are sticky, all 18 actions are available, and the loss of a life is not a
termination (Machado et al. 2018). A game's score is the mean return of the evaluation at the end of the run, over
whole games. The human-normalised score is 0 for a random player and 1 for a human.
"""

import argparse
import csv
import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from acme_ext import builders, envs
from acme_ext.commands import common
from acme_ext.config.assignments import split_assignments
from acme_ext.errors import UsageError
from acme_ext.utils import files
from benchmarks.learning import atari57, outcomes
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome
from benchmarks.learning.settings import Setting
from benchmarks.shared import command

PROTOCOLS: dict[str, dict[str, Any]] = {
    "nature": {"noop_max": 30},
    "machado": {"noop_max": 0, "sticky_actions": 0.25, "life_loss": False, "full_action_set": True},
}
"""Options of the environment: as in Mnih et al. 2015, and as recommended by Machado et al. 2018."""
_MAX_FRAMES = 108_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code, see `learning.main`."""
    options = _parser().parse_args(arguments)
    return command.run("benchmarks.learning.atari", lambda: _main(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.atari",
        description=f"{__doc__} Finished runs are not run again; stopped runs are resumed.",
    )
    add = parser.add_argument
    add("agent", metavar="AGENT", help=", ".join(builders.AGENTS))
    add("--games", nargs="+", default=list(atari57.SCORES), metavar="GAME", help="games, such as Pong (all 57)")
    add("--steps", type=int, default=50_000_000, metavar="N", help="environment steps, of 4 frames each (%(default)s)")
    add("--num-envs", type=int, default=8, metavar="B", help="environments per actor (%(default)s)")
    add("--actors", type=int, default=0, metavar="N", help="actors of a program; 0: run in one process (%(default)s)")
    add("--eval-episodes", type=int, default=30, metavar="N", help="episodes of the final evaluation (%(default)s)")
    add(
        "--protocol",
        choices=PROTOCOLS,
        default="nature",
        help="nature: no-ops; machado: sticky actions and all 18 actions (%(default)s)",
    )
    common.add_env_set(parser)
    add(
        "--max-frames",
        type=int,
        default=_MAX_FRAMES,
        metavar="N",
        help="maximum number of frames in an episode (%(default)s)",
    )
    common.add_set(parser, "a field of the agent's config")
    command.add(parser, "jobs", "fresh", seeds=[0], runs="runs/benchmarks/atari-AGENT")
    return parser


def _main(options: argparse.Namespace) -> int:
    builders.check_agent_name(options.agent)
    atari57.check(options.games)
    for name in ("steps", "num_envs", "eval_episodes", "jobs"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} is {getattr(options, name)}: it must be at least 1.")
    if options.actors < 0:
        raise UsageError(f"--actors is {options.actors}: it must not be negative.")
    given = {**common.environment_options(options), "max_frames": options.max_frames}
    environment_options = {**PROTOCOLS[options.protocol], **given}
    envs.check_environment(f"atari:{options.games[0]}", **environment_options)
    if options.max_frames <= environment_options["noop_max"]:
        noops = environment_options["noop_max"]
        raise UsageError(f"--max-frames is {options.max_frames}: it must be more than the {noops} no-ops.")
    command.check_seeds(options.seeds)
    name = f"atari-{options.agent}" + ("" if options.protocol == "nature" else f"-{options.protocol}")
    runs = options.runs or learning.RUNS / name
    out = options.out or learning.RESULTS
    files.make_writable_folder(out)
    setting = Setting(
        options.agent,
        "atari:GAME",
        options.steps,
        options.num_envs,
        eval_every=0,
        eval_episodes=options.eval_episodes,
        config=split_assignments(options.set),
        actors=options.actors,
        environment_options=environment_options,
    )
    experiments = {
        (game, seed): dataclasses.replace(setting, environment=f"atari:{game}").experiment(
            seed, setting.steps, runs / game / f"seed-{seed}"
        )
        for game in options.games
        for seed in options.seeds
    }
    named = {f"{game}, seed {seed}": experiment for (game, seed), experiment in experiments.items()}
    if code := learning.run_all(setting, named, options.jobs, fresh=options.fresh):
        return code

    found = {
        game: [outcomes.read(experiments[game, seed], setting.parts) for seed in options.seeds]
        for game in options.games
    }
    print("\n".join(_table(found)))
    print("\n".join(_together(found)))
    print("written:", *write(out / name, setting, found))
    faults = [f"{game}, seed {o.seed}: {o.fault}" for game, each in found.items() for o in each if o.fault]
    if faults:
        print(f"failed: {'; '.join(faults)}.")
    return 1 if faults else 0


_HEADER = ("game", "random", "human", "score", "least", "greatest", "human-normalised")


def _table(found: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """Returns a table in Markdown with a row for each game."""
    lines = ["| " + " | ".join(_HEADER) + " |", "|---|" + "--:|" * (len(_HEADER) - 1)]
    for game, each in found.items():
        scores = [o.score for o in each]
        cells = (
            game,
            *(f"{score:,.1f}" for score in (*atari57.SCORES[game], np.mean(scores), min(scores), max(scores))),
            f"{np.mean(_normalized(game, each)):.1%}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _normalized(game: str, each: Sequence[Outcome]) -> list[float]:
    return [atari57.normalized(game, o.score) for o in each]


def _together(found: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """Returns the aggregates over games, in Markdown."""
    whole = atari57.aggregate({game: _normalized(game, each) for game, each in found.items()})
    lines = ["| of the human-normalised scores | | 95% interval |", "|---|--:|--:|"]
    for name, estimate in (
        ("interquartile mean", whole.iqm),
        ("median", whole.median),
        ("mean", whole.mean),
        ("5th percentile", whole.percentile_5),
    ):
        interval = " to ".join(f"{end:.1%}" for end in estimate.interval or ())
        lines.append(f"| {name} | {estimate.value:.1%} | {interval} |")
    lines.append(f"| games above human | {whole.above_human} of {len(found)} | |")
    return lines


def write(out: pathlib.Path, setting: Setting, found: Mapping[str, Sequence[Outcome]]) -> list[pathlib.Path]:
    """Writes the page and the scores of all runs to `out` with their file extensions; returns the paths."""
    table = out.with_suffix(".csv")
    with files.replacing(table) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("game", "seed", "environment_steps", "learner_steps", "wall_time_s", "score", "normalised"))
        for game, each in found.items():
            for o, share in zip(each, _normalized(game, each), strict=True):
                row = (o.environment_steps, o.learner_steps, f"{o.wall_time_s:.0f}", o.score, f"{share:.6f}")
                writer.writerow((game, o.seed, *row))
    page = out.with_suffix(".md")
    facts = outcomes.machine([o for each in found.values() for o in each])
    lines = [
        f"# {out.name}",
        "",
        f"{setting}. Made by `{_command(setting, found)}`.",
        "",
        f"{len(found)} of the 57 games. A score is the mean return of the "
        f"evaluation at a run's end, {setting.eval_episodes} whole games on seeds of its own; where there are several "
        "seeds, their mean beside the least and the greatest. 0% is the random player and 100% the human of Wang et "
        "al. 2016.",
        "",
        *_table(found),
        "",
        *_together(found),
        "",
        "Mean, median and 5th percentile are of the games' means; the interquartile mean is of the middle half of all "
        "runs. Intervals are stratified bootstraps over seeds, by rliable; a single seed has none.",
        "",
        f"Every run: [{table.name}]({table.name}).",
        "",
        ", ".join(f"{name} {value}" for name, value in facts.items()) + ".",
    ]
    files.write_text(page, "\n".join(lines) + "\n")
    return [page, table]


def _command(setting: Setting, found: Mapping[str, Sequence[Outcome]]) -> str:
    games = [] if len(found) == len(atari57.SCORES) else ["--games", *found]
    seeds = [o.seed for o in next(iter(found.values()))]
    words = ["python -m benchmarks.learning.atari", setting.agent, *games, "--steps", setting.steps, "--seeds", *seeds]
    words += ["--num-envs", setting.num_envs]
    words += ["--actors", setting.actors] if setting.actors else []
    words += ["--eval-episodes", setting.eval_episodes, "--max-frames", setting.environment_options["max_frames"]]
    protocol = "machado" if setting.environment_options.get("sticky_actions") else "nature"
    words += ["--protocol", protocol] if protocol != "nature" else []
    for name, value in setting.environment_options.items():
        if name != "max_frames" and PROTOCOLS[protocol].get(name) != value:
            words += ["--env-set", f"{name}={value}"]
    for name, value in setting.config.items():
        words += ["--set", f"{name}={value}"]
    return " ".join(map(str, words))


if __name__ == "__main__":
    sys.exit(main())
