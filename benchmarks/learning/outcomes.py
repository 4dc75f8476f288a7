"""Results of a setting's runs: reads them from run directories, checks them, and stores them as JSON."""

import dataclasses
import fcntl
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from acme_ext.commands.players import against_every_reply
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.players import RunPlayer
from acme_ext.utils import files, loggers
from acme_ext.utils.plots import interquartile_mean
from acme_ext.utils.rundir import RunDirectory
from benchmarks.learning.settings import Setting
from benchmarks.shared import report

_COLUMNS = {"environment_steps": 0, "learner_steps": 0, "wall_time_s": 1, "episode_return_mean": 4}  # decimals kept


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The results of a seed's run."""

    seed: int
    score: float  # the mean return of the final evaluation
    least_episode: float  # minimum return of its episodes
    greatest_episode: float  # maximum return of its episodes
    environment_steps: int
    learner_steps: int
    wall_time_s: float
    fault: str | None = None  # what is wrong with the run; None if nothing is
    evaluations: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)  # learning curve, by column
    # Won, drawn and lost final positions against all possible replies, as the first player and as the second
    replies: Sequence[Sequence[int]] | None = None
    version: str | None = None  # of this package in the run; None in results of earlier versions

    @property
    def lost(self) -> int:
        """The number of lost final positions against all possible replies."""
        return sum(lost for *_, lost in self.replies or ())


def read(experiment: Experiment, parts: int, *, every_reply: bool = False) -> Outcome:
    """Reads the results of an experiment's finished run.

    Args:
        experiment: the run's experiment.
        parts: see `Setting.parts`.
        every_reply: whether to also play against all possible replies.
    """
    rundir = RunDirectory.open(experiment.directory)
    evaluation = rundir.read_evaluation()
    evaluations = loggers.read_csv(loggers.csv_path(rundir, "evaluator"))
    path = loggers.csv_path(rundir, "learner")
    losses = loggers.read_csv(path).get("loss", np.zeros(0)) if path.is_file() else np.zeros(0)
    fault = None
    if not len(losses):
        fault = "it never learned"
    elif not np.isfinite(losses).all():
        fault = "a loss is not finite"
    elif len(evaluations["environment_steps"]) < parts:
        # Each part ends with an evaluation. A part that started from the beginning would have deleted the earlier ones.
        fault = "it did not resume"
    returns = np.asarray(evaluation["returns"])
    return Outcome(
        seed=experiment.seed,
        score=float(returns.mean()),
        least_episode=float(returns.min()),
        greatest_episode=float(returns.max()),
        environment_steps=evaluation["environment_steps"],
        learner_steps=int(evaluations["learner_steps"][-1]),
        wall_time_s=float(evaluations["wall_time_s"][-1]),
        fault=fault,
        evaluations={name: np.round(evaluations[name], digits).tolist() for name, digits in _COLUMNS.items()},
        replies=[list(r[:3]) for r in against_every_reply(RunPlayer(rundir.path))] if every_reply else None,
        version=rundir.read_config()["run"].get("version"),
    )


def machine(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Returns `report.machine`, with the versions of this package that made the runs: not all were made just now."""
    versions = ", ".join(dict.fromkeys(o.version for o in outcomes if o.version))
    return report.machine(after=True) | ({"acme-ext": versions} if versions else {})


@dataclasses.dataclass(frozen=True)
class Summary:
    """The results of a setting over all seeds."""

    mean: float  # of the final returns
    iqm: float  # their interquartile mean: the mean of the middle half
    interval: tuple[float, float]  # 95% interval of the IQM, by bootstrap over the seeds (Agarwal et al. 2021)
    least: float  # minimum of the final returns
    steady: float | None  # fraction of the evaluations in the last quarter of the budget that reach the bar of the mean


def summarise(setting: Setting, outcomes: Sequence[Outcome], *, resamples: int = 2_000) -> Summary:
    """Returns the results over all seeds."""
    scores = np.array([o.score for o in outcomes])
    drawn = np.random.default_rng(0).integers(len(scores), size=(resamples, len(scores)))
    low, high = np.percentile([interquartile_mean(scores[i]) for i in drawn], [2.5, 97.5])
    late = [
        value
        for o in outcomes
        for steps, value in zip(*(o.evaluations.get(name, ()) for name in _CURVE), strict=True)
        if steps > 0.75 * setting.steps
    ]
    steady = None if setting.mean is None or not late else float(np.mean(np.array(late) >= setting.mean))
    return Summary(
        float(scores.mean()), float(interquartile_mean(scores)), (float(low), float(high)), float(scores.min()), steady
    )


_CURVE = ("environment_steps", "episode_return_mean")


def passed(setting: Setting, outcomes: Sequence[Outcome]) -> bool:
    """Whether there are no faults and the bars are reached."""
    if any(o.fault for o in outcomes) or (setting.never_loses and any(o.lost for o in outcomes)):
        return False
    found = summarise(setting, outcomes, resamples=1)
    bars = ((found.mean, setting.mean), (found.least, setting.least))
    return all(least is None or value >= least for value, least in bars)


_HEADER = ("seed", "final return", "least episode", "greatest", "steps", "learner steps", "wall time s")


def _cells(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            str(o.seed),
            f"{o.score:.4g}",
            f"{o.least_episode:.4g}",
            f"{o.greatest_episode:.4g}",
            f"{o.environment_steps:,}",
            f"{o.learner_steps:,}",
            f"{o.wall_time_s:.0f}",
        )
        for o in outcomes
    ]
    scores = np.array([o.score for o in outcomes])
    for name, value in (
        ("mean", scores.mean()),
        ("IQM", interquartile_mean(scores)),
        ("least", scores.min()),
    ):
        rows.append((name, f"{value:.4g}", *[""] * (len(_HEADER) - 2)))
    return rows


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns the lines of a table, with a row for each seed and a row for all seeds."""
    rows = [_HEADER, *_cells(outcomes)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    return ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def verdict(setting: Setting, outcomes: Sequence[Outcome]) -> str:
    """Returns a sentence on whether the setting's bars are reached."""
    if faults := [f"seed {o.seed}: {o.fault}" for o in outcomes if o.fault]:
        return f"MISSED: {'; '.join(faults)}."
    said = bar(setting, outcomes)
    return f"Bar: {said}." if said else "No bar; all losses are finite."


def bar(setting: Setting, outcomes: Sequence[Outcome]) -> str:
    """Returns the setting's bars and whether they are reached; an empty string if there are no bars."""
    bars = [
        f"{name} {least:g}" for name, least in (("mean", setting.mean), ("least", setting.least)) if least is not None
    ]
    lost = ""
    if setting.never_loses:
        bars.append("never loses")
        if any(o.lost for o in outcomes):
            lost = f" ({', '.join(f'seed {o.seed} {o.lost} positions' for o in outcomes if o.lost)})"
    return f"{', '.join(bars)}: {'reached' if passed(setting, outcomes) else 'MISSED'}{lost}" if bars else ""


def write(
    path: pathlib.Path, name: str, setting: Setting, outcomes: Sequence[Outcome], *, device: bool = False
) -> None:
    """Writes the seeds' results, their curves and the machine to a JSON file, under the setting's name.

    The file's entries for other settings are kept. With `device`, the machine's accelerator is named too; see
    `report.device`.
    """
    entry = {
        "setting": str(setting),
        "machine": machine(outcomes) | (report.device() if device else {}),
        "seeds": [dataclasses.asdict(outcome) for outcome in outcomes],
    }
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # other processes may write other settings' entries now
        entries = (files.read_json(path) if path.is_file() else {}) | {name: entry}
        files.write_text(path, _text(entries))
    finally:
        os.close(folder)


def _text(entries: Mapping[str, Any]) -> str:
    """Returns the entries as JSON, sorted by name, with a line for the machine and for each seed."""

    def of(entry: Mapping[str, Any]) -> str:
        seeds = ",\n   ".join(json.dumps(seed) for seed in entry["seeds"])
        facts = ",\n  ".join(f"{json.dumps(key)}: {json.dumps(entry[key])}" for key in ("setting", "machine"))
        return f'{{\n  {facts},\n  "seeds": [\n   {seeds}\n  ]\n }}'

    lines = ",\n ".join(f"{json.dumps(name)}: {of(entries[name])}" for name in sorted(entries))
    return f"{{\n {lines}\n}}\n"


class Written(NamedTuple):
    """A setting's entry that `write` wrote."""

    setting: str  # description of the setting when it was run
    machine: dict[str, Any]
    seeds: list[Outcome]


def load(path: pathlib.Path) -> dict[str, Written]:
    """Returns the entries that `write` wrote, by the settings' names; empty if there is no file."""
    entries = files.read_json(path) if path.is_file() else {}
    return {
        name: Written(entry["setting"], entry["machine"], [Outcome(**seed) for seed in entry["seeds"]])
        for name, entry in entries.items()
    }
