"""What the runs of a setting came to: read from their directories, judged, and written as a page."""

import csv
import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from acme_ext.launch.experiment import Experiment
from acme_ext.utils import files, loggers
from acme_ext.utils.rundir import RunDirectory
from benchmarks import report
from benchmarks.settings import Setting

_COLUMNS = (
    "environment_steps",
    "learner_steps",
    "wall_time_s",
    "episode_return_mean",
    "episode_return_std",
    "episode_return_min",
    "episode_return_max",
    "episodes",
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a seed's run came to."""

    seed: int
    environment_steps: int
    learner_steps: int
    wall_time_s: float
    returns: np.ndarray  # [episodes] of the final evaluation
    fault: str | None  # what must not be

    @property
    def score(self) -> float:
        """The mean return of the final evaluation."""
        return float(self.returns.mean())


def read(experiment: Experiment, parts: int) -> Outcome:
    """Reads what the finished run of an experiment, in so many parts, has left."""
    rundir = RunDirectory.open(experiment.directory)
    evaluation = rundir.read_evaluation()
    evaluations = _evaluations(rundir)
    last = {name: column[-1] for name, column in evaluations.items()}
    path = loggers.csv_path(rundir, "learner")
    losses = loggers.read_csv(path).get("loss", np.zeros(0)) if path.is_file() else np.zeros(0)
    fault = None
    if not len(losses):
        fault = "it never learned"
    elif not np.isfinite(losses).all():
        fault = "a loss is not finite"
    elif len(evaluations["environment_steps"]) < parts:
        # Each part ends with an evaluation, and one that had started anew would have dropped those before it.
        fault = "it did not resume"
    return Outcome(
        seed=experiment.seed,
        environment_steps=evaluation["environment_steps"],
        learner_steps=int(last["learner_steps"]),
        wall_time_s=float(last["wall_time_s"]),
        returns=np.asarray(evaluation["returns"]),
        fault=fault,
    )


def passed(setting: Setting, outcomes: Sequence[Outcome]) -> bool:
    """Whether nothing is at fault and the bar is reached."""
    if any(o.fault for o in outcomes):
        return False
    return setting.bar is None or _statistic(setting, outcomes) >= setting.bar


def _statistic(setting: Setting, outcomes: Sequence[Outcome]) -> float:
    scores = [o.score for o in outcomes]
    return float(np.median(scores) if setting.statistic == "median" else np.mean(scores))


def _evaluations(rundir: RunDirectory) -> dict[str, np.ndarray]:
    return loggers.read_csv(loggers.csv_path(rundir, "evaluator"))


_HEADER = ("seed", "final return", "least episode", "greatest", "steps", "learner steps", "wall time s")


def _cells(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            str(o.seed),
            f"{o.score:.4g}",
            f"{o.returns.min():.4g}",
            f"{o.returns.max():.4g}",
            f"{o.environment_steps:,}",
            f"{o.learner_steps:,}",
            f"{o.wall_time_s:.0f}",
        )
        for o in outcomes
    ]
    scores = np.array([o.score for o in outcomes])
    for name, value in (
        ("median", np.median(scores)),
        ("mean", scores.mean()),
        ("least", scores.min()),
        ("greatest", scores.max()),
    ):
        rows.append((name, f"{value:.4g}", *[""] * (len(_HEADER) - 2)))
    return rows


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns the lines of a table, a row for each seed and for what they come to together."""
    rows = [_HEADER, *_cells(outcomes)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    return ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def verdict(setting: Setting, outcomes: Sequence[Outcome]) -> str:
    """Returns a sentence on whether the setting's bar is reached."""
    if faults := [f"seed {o.seed}: {o.fault}" for o in outcomes if o.fault]:
        return f"MISSED: {'; '.join(faults)}."
    if setting.bar is None:
        return "No bar; all losses are finite."
    reached = "reached" if passed(setting, outcomes) else "MISSED"
    value = _statistic(setting, outcomes)
    return f"{setting.statistic.capitalize()} {value:.4g}, bar {setting.bar:g}: {reached}."


def write(
    out: pathlib.Path, setting: Setting, experiments: Sequence[Experiment], outcomes: Sequence[Outcome]
) -> list[pathlib.Path]:
    """Writes the page, the learning curve and the evaluations to `out` with their endings; returns the paths."""
    from acme_ext.utils import plots

    rundirs = [RunDirectory.open(experiment.directory) for experiment in experiments]
    figure = plots.learning_curves({f"{setting.agent} on {setting.environment}": rundirs}, out.with_suffix(".png"))
    table = out.with_suffix(".csv")
    with files.replacing(table) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("seed", *_COLUMNS))
        for o, rundir in zip(outcomes, rundirs, strict=True):
            columns = _evaluations(rundir)
            for row in zip(*(columns[name].tolist() for name in _COLUMNS), strict=True):
                writer.writerow((o.seed, *row))
    page = out.with_suffix(".md")
    facts = report.machine()
    lines = [
        f"# {out.name}",
        "",
        f"{setting}. Made by `python -m benchmarks.learning {out.name}`.",
        "",
        "A final return is the mean of a seed's last evaluation, greedy, on environments and seeds of its own.",
        "",
        "| " + " | ".join(_HEADER) + " |",
        "|" + "--:|" * len(_HEADER),
        *("| " + " | ".join(row) + " |" for row in _cells(outcomes)),
        "",
        verdict(setting, outcomes),
        "",
        f"![learning curve]({figure.name})",
        "",
        f"Evaluations on the way: [{table.name}]({table.name}).",
        "",
        ", ".join(f"{name} {value}" for name, value in facts.items()) + ".",
    ]
    with files.replacing(page) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [page, figure, table]
