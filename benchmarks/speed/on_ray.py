"""`python -m benchmarks.speed.on_ray`: compares programs on a local Ray with the same programs on processes."""

import argparse
import dataclasses
import pathlib
import statistics
import sys
from collections.abc import Mapping, Sequence

from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.builders import DQN
from acme_ext.replay.config import TransitionConfig
from acme_ext.utils import files
from benchmarks.shared import report
from benchmarks.speed.sections import program
from benchmarks.speed.sections.program import Outcome, Trial, Unlimited

RESULTS = pathlib.Path(__file__).parents[1] / "results"
WORLDS = ("processes", "ray")

_MLP = DQNConfig(hidden_sizes=(64, 64), batch_size=128, replay=TransitionConfig(n_step=3, min_size=200))
_ROWS = {  # the table's rows: name -> (trial, field of its outcome)
    "start-up to the first action, s": ("short", "first_action"),
    "start-up to the first learner step, s": ("short", "first_learner_step"),
    "stop: last step to exit, saved and evaluated, s": ("short", "stop"),
    "stop: Ctrl-C to exit, saved, s": ("latency", "stop"),
    "actors, environment steps of 3 ms, steps/s": ("latency", "actor_rate"),
    "actors, environment steps of CPU alone, steps/s": ("cpu", "actor_rate"),
    "learner, MLP 64x64, batch 128, idle actors, SGD steps/s": ("learner", "learner_rate"),
}


def trials(seconds: float) -> dict[str, Trial]:
    """Returns the measured programs, with 2 actors each; those that don't end by themselves run for `seconds`."""
    return {
        "short": Trial(DQN(_MLP), steps=2_000, sleep_s=1e-3),
        "latency": Trial(DQN(_MLP), sleep_s=3e-3, seconds=seconds),
        "cpu": Trial(DQN(_MLP), seconds=seconds),
        "learner": Trial(Unlimited(_MLP), sleep_s=50e-3, seconds=seconds),
    }


def table(found: Mapping[str, Mapping[str, Sequence[Outcome]]]) -> list[str]:
    """Returns the figures as lines of Markdown: medians and ranges over rounds, and the median ratio in a round.

    Args:
        found: the outcomes of the rounds, by trial and world.
    """
    lines = ["| | processes | Ray | Ray / processes |", "|---|--:|--:|--:|"]
    for name, (kind, field) in _ROWS.items():
        values = {world: [getattr(outcome, field) for outcome in found[kind][world]] for world in WORLDS}
        ratio = statistics.median(b / a for a, b in zip(*values.values(), strict=True))
        cells = [f"{statistics.median(v):,.4g} ({min(v):,.4g} to {max(v):,.4g})" for v in values.values()]
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.on_ray", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="seconds of a program (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds of all programs (%(default)s)")
    parser.add_argument(
        "--out", type=pathlib.Path, default=RESULTS, metavar="DIR", help="folder for the page (benchmarks/results)"
    )
    options = parser.parse_args(arguments)
    facts = report.machine()  # with the load before the measurements
    found: dict[str, dict[str, list[Outcome]]] = {
        kind: {world: [] for world in WORLDS} for kind in trials(options.seconds)
    }
    for _ in range(options.rounds):
        for kind, trial in trials(options.seconds).items():
            for world in WORLDS:
                found[kind][world].append(program.attempt(dataclasses.replace(trial, on=world)))
                print(f"{kind} on {world}: {found[kind][world][-1]}", flush=True)
    lines = table(found)
    print("\n".join(lines))
    said = f"{options.rounds} rounds by turns, {options.seconds:g} s each; medians, least and greatest."
    title = "# Programs on Ray beside programs on processes"
    machine = ", ".join(f"{name} {value}" for name, value in facts.items())
    text = "\n".join([title, "", f"DQN on CartPole with 2 actors. {said}", "", *lines, "", f"{machine}.", ""])
    files.write_text(options.out / "on-ray.md", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
