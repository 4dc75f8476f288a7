"""The results of a study: a table, a JSON file, and two figures."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from acme_ext.commands.tuning.study import Retrained, State, Study, say
from acme_ext.utils import files, plots

_COLOURS = {"COMPLETE": "#0072B2", "PRUNED": "#999999", "FAIL": "#D55E00"}


def table(study: Study, retrained: Sequence[Retrained]) -> list[str]:
    """Returns a table of the retrained settings, in their order, or of the best trials if none were retrained."""
    found = {f"trial {trial.number}": f"{trial.value:.4g}" for trial in study.best}
    header = ("setting", "in the search", "mean", "std", "least", "greatest", "seeds")
    rows: list[tuple[str, ...]] = []
    for each in retrained:
        scores = each.scores
        spread = [f"{f(scores):.4g}" for f in (np.mean, np.std, np.min, np.max)] if len(scores) else ["-"] * 4
        seeds = f"{len(each.outcomes)}" + (f" ({each.failed} failed)" if each.failed else "")
        rows.append((each.name, found.get(each.name, ""), *spread, seeds))
    if not retrained:
        header = header[:2]
        rows = [(f"trial {trial.number}", f"{trial.value:.4g}") for trial in study.best[:3]]
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)]
    chosen = {each.name: each.settings for each in retrained} or {
        f"trial {trial.number}": study.settings_of(trial) for trial in study.best[:3]
    }
    return [*lines, "", *(f"{name}: {say(values)}" for name, values in chosen.items())]


def counts(study: Study) -> str:
    """Returns in words how many trials completed, were pruned, and failed."""
    ends = [trial.state.name for trial in study.trials if trial.state.is_finished()]
    words = {"COMPLETE": "went to their end", "PRUNED": "were pruned", "FAIL": "failed"}
    said = [f"{ends.count(name)} {word}" for name, word in words.items() if name in ends]
    return f"{len(ends)} trials: {', '.join(said)}" if said else "no trial has ended"


def importances(study: Study) -> dict[str, float]:
    """Returns the importance of each field, the largest first; an empty dictionary if there are too few trials.

    The importance is the field's share of the difference between good and other trials, by PED-ANOVA (Watanabe et al.
    2023, https://arxiv.org/abs/2304.10255). The sum is 1.
    """
    if len(study.best) < 2:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return dict(optuna.importance.get_param_importances(study.optuna, evaluator=evaluator()))
        except (RuntimeError, ValueError):  # all trials are equally good, or there are too few
            return {}


def write(study: Study, retrained: Sequence[Retrained]) -> list[Path]:
    """Writes results.json, history.png and importance.png to the study's directory; returns the paths written.

    history.png is left out if no trial has a value, and importance.png if there are no importances.
    """
    shares = importances(study)
    results = study.path / "results.json"
    files.write_json(
        results,
        {
            "study": study.tuned.describe(),
            "trials": [_trial(study, trial) for trial in study.trials],
            "retrained": [_retrained(each) for each in retrained],
            "importances": shares,
        },
    )
    drawn = [(study.path / "history.png", _draw_history(study)), (study.path / "importance.png", _draw_shares(shares))]
    for path, figure in drawn:
        if figure is not None:
            plots.save(figure, path)
    return [results, *(path for path, figure in drawn if figure is not None)]


def _trial(study: Study, trial: Any) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": trial.state.name,
        "return": trial.value if trial.state == State.COMPLETE else None,
        "settings": study.settings_of(trial),
        "evaluations": {str(index): value for index, value in sorted(trial.intermediate_values.items())},
        "reason": trial.user_attrs.get("reason"),
    }


def _retrained(each: Retrained) -> dict[str, Any]:
    scores = each.scores
    spread = {"mean": np.mean, "std": np.std, "least": np.min, "greatest": np.max}
    return {
        "name": each.name,
        "settings": dict(each.settings),
        "seeds": {str(seed): outcome._asdict() for seed, outcome in each.outcomes.items()},
        **{name: f(scores) if len(scores) else None for name, f in spread.items()},
    }


def _draw_history(study: Study) -> Any:
    """Draws the return of each trial, or the last return of a trial that was stopped early, and the best so far."""
    points: dict[str, list[tuple[int, float]]] = {}
    for trial in study.trials:
        reported = trial.intermediate_values
        value = trial.value if trial.state == State.COMPLETE else reported[max(reported)] if reported else None
        if value is not None and trial.state.is_finished():
            points.setdefault(trial.state.name, []).append((trial.number, value))
    if not points:
        return None
    figure = plots.new_figure(6.8, 4.0)
    axes: Any = figure.add_subplot()
    plots.add_grid(axes)
    words = {"COMPLETE": "to its end", "PRUNED": "ended early: its last evaluation", "FAIL": "failed: likewise"}
    for name in [name for name in words if name in points]:
        numbers, values = zip(*points[name], strict=True)
        axes.scatter(numbers, values, s=22, color=_COLOURS[name], label=words[name], zorder=3)
    if complete := points.get("COMPLETE"):
        numbers, values = zip(*complete, strict=True)
        axes.step(numbers, np.maximum.accumulate(values), where="post", color=_COLOURS["COMPLETE"], label="best so far")
    axes.set_xlabel("trial")
    axes.set_ylabel("return")
    axes.set_title(f"{study.tuned.agent} on {study.tuned.environment}", fontsize=11)
    axes.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def _draw_shares(shares: dict[str, float]) -> Any:
    if not shares:
        return None
    figure = plots.new_figure(6.8, 1.2 + 0.3 * len(shares))
    axes: Any = figure.add_subplot()
    plots.add_grid(axes)
    names = list(shares)[::-1]
    axes.barh(names, [shares[name] for name in names], color=_COLOURS["COMPLETE"])
    axes.set_xlabel("share of the difference between good and other trials (PED-ANOVA)")
    return figure
