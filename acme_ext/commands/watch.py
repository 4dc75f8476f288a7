"""Shows the progress of a run from its files, for `acme-ext watch`."""

import io
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from acme_ext.config.values import display_name
from acme_ext.utils import charts, loggers, progress
from acme_ext.utils.rundir import RunDirectory

_REFRESH_S = 1.0
_FRESH_S = 20.0  # without news for this time, a run that no process of this host locks is considered ended
_RATE_S = 10.0  # interval over which rates are computed
_TAIL_BYTES = 1 << 16  # end of a log that is read for recent values
_EPISODES = 20  # number of recent returns that are averaged
_CURVE_LINES = 8
_NOT_SHOWN = ("environment_steps", "learner_steps", "wall_time_s")


def watch(path: str | os.PathLike[str], *, once: bool = False) -> None:
    """Prints a run's progress; on a terminal, updates it every second until the run ends.

    Args:
        path: the run directory; the run may be on another host that shares the disk.
        once: prints it only once, even on a terminal.

    Raises:
        UsageError: the path is no run directory.
    """
    rundir = RunDirectory.open(path)
    live = not once and sys.stdout.isatty()
    while True:
        going = is_live(rundir)
        size = shutil.get_terminal_size()
        lines = screen(rundir, size.columns, braille="utf" in (sys.stdout.encoding or "").lower())
        if not live:
            print("\n".join(lines))
            return
        shown = [line[: size.columns - 1] for line in lines[: size.lines - 1]]
        print("\x1b[H\x1b[J" + "\n".join(shown), flush=True)
        if not going:
            return
        time.sleep(_REFRESH_S)


def is_live(rundir: RunDirectory) -> bool:
    """Whether a run is running: a process locks its directory, or has written its status recently."""
    status = rundir.read_status()
    return rundir.holder is not None or (status is not None and time.time() - status["time"] < _FRESH_S)


def screen(rundir: RunDirectory, width: int = 80, *, braille: bool = True) -> list[str]:
    """Returns a run's progress as lines of text."""
    config, status = rundir.read_config(), rundir.read_status()
    step_key = "learner_steps" if "data" in config else "environment_steps"
    learner, actor = (_tail(loggers.csv_path(rundir, label)) for label in ("learner", "actor"))
    path = loggers.csv_path(rundir, "evaluator")
    evaluator = loggers.read_csv(path) if path.is_file() else {}

    agent, environment = (display_name(config[name]) for name in ("agent", "environment"))
    lines = [f"{rundir.path}: {agent} on {environment}, seed {config['seed']}"]
    lines.append(_state(rundir, status))
    budget = config["run"]["steps"]
    taken = max(
        (int(log[step_key][-1]) for log in (learner, actor, evaluator) if len(log.get(step_key, ()))), default=0
    )
    parts = [f"{taken:,} of {budget:,} ({100 * taken / budget:.0f}%)"]
    if is_live(rundir) and (rate := _rate(learner or actor, step_key)):
        parts += [f"{rate:,.0f}/s", f"{progress.duration((budget - taken) / rate)} left"] if taken < budget else []
    lines += ["", f"steps       {', '.join(parts)}"]
    if len(learner.get("learner_steps", ())):
        rate = _rate(learner, "learner_steps") if is_live(rundir) else None
        known = ((name, values[np.isfinite(values)]) for name, values in learner.items() if name not in _NOT_SHOWN)
        metrics = [f"{name} {values[-1]:.4g}" for name, values in known if len(values)]  # a row may lack some of them
        said = f"{int(learner['learner_steps'][-1]):,} steps" + (f", {rate:,.0f}/s" if rate else "")
        lines += _wrapped("learner     ", [said, *metrics], width)
    if len(actor.get("episode_return", ())):
        mean, episodes = _recent(actor)
        lines.append(f"training    return {mean:.4g}, the mean of the last {episodes} episodes")
    if len(evaluator.get("episode_return_mean", ())):
        values, steps = evaluator["episode_return_mean"], evaluator[step_key]
        best = int(values.argmax())
        lines.append(
            f"evaluation  return {values[-1]:.4g} at step {steps[-1]:,.0f}; the best {values[best]:.4g} at "
            f"{steps[best]:,.0f}"
        )
    if status is not None and status["replay"]:
        lines += _wrapped("replay      ", status["replay"].split(", "), width)
    if status is not None and is_live(rundir):
        margin = max([10, *map(len, status["nodes"])]) + 2
        lines.append("")
        for name, doing in status["nodes"].items():
            lines += textwrap.wrap(f"{name:<{margin}}{doing}", width - 1, subsequent_indent=" " * margin)
    lines += _curve(evaluator, actor, step_key, width, braille)
    return lines


def _recent(actor: Mapping[str, np.ndarray]) -> tuple[float, int]:
    """Returns the mean return of the last episodes, and their number; a row can have the mean of several."""
    returns = actor["episode_return"]
    counts = actor.get("episodes", np.ones(len(returns)))
    rows = 1 + int(np.searchsorted(np.cumsum(counts[::-1]), _EPISODES))
    returns, counts = returns[-rows:], counts[-rows:]
    return float(np.average(returns, weights=counts)), int(counts.sum())


def _state(rundir: RunDirectory, status: Mapping[str, Any] | None) -> str:
    if (holder := rundir.holder) is not None:
        return f"running, by {holder}"
    if status is not None:
        age = time.time() - status["time"]
        return f"running, last report {age:.0f} s ago" if age < _FRESH_S else "killed: it can be resumed"
    return "finished" if rundir.evaluation.is_file() else "stopped: it can be resumed"


def _curve(
    evaluator: Mapping[str, np.ndarray], actor: Mapping[str, np.ndarray], step_key: str, width: int, braille: bool
) -> list[str]:
    for what, log, column in (("evaluation", evaluator, "episode_return_mean"), ("training", actor, "episode_return")):
        if len(log.get(column, ())) and log[step_key][-1] > log[step_key][0]:
            good = np.isfinite(log[column])
            if not good.any():
                continue
            drawn = charts.curve(log[step_key][good], log[column][good], min(width, 100), _CURVE_LINES, braille=braille)
            return ["", f"return in {what}, by {step_key.replace('_', ' ')}", *drawn]
    return []


def _tail(path: Path) -> dict[str, np.ndarray]:
    """Returns the last rows of a log by column; empty if there is no log."""
    if not path.is_file():
        return {}
    with open(path, "rb") as file:
        header = file.readline()
        size = file.seek(0, io.SEEK_END)
        file.seek(max(len(header), size - _TAIL_BYTES))
        lines = file.read().splitlines(keepends=True)
    if size - _TAIL_BYTES > len(header):
        lines = lines[1:]  # the first line may be incomplete
    return loggers.parse_csv(path, [header, *lines])


def _rate(log: Mapping[str, np.ndarray], column: str) -> float | None:
    """Returns the steps per second over the last ten seconds of a log; None if they can't be computed."""
    if len(log.get(column, ())) < 2:
        return None
    seconds, steps = log["wall_time_s"], log[column]
    first = int(np.searchsorted(seconds, seconds[-1] - _RATE_S))
    first = min(first, len(seconds) - 2)
    elapsed = float(seconds[-1] - seconds[first])
    return float(steps[-1] - steps[first]) / elapsed if elapsed > 0 and steps[-1] > steps[first] else None


def _wrapped(head: str, parts: list[str], width: int) -> list[str]:
    """Returns parts joined by commas after `head`, wrapped to the width with indentation."""
    lines = [head + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 2 + len(part) < width:
            lines[-1] += f", {part}"
        else:
            lines.append(" " * len(head) + part)
    return lines
