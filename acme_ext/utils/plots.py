"""Draws figures of the learning curves of runs."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from acme_ext.config.comparison import ABSENT, flatten
from acme_ext.config.values import display_name
from acme_ext.errors import UsageError
from acme_ext.utils import files, loggers
from acme_ext.utils.rundir import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Run = RunDirectory | str | os.PathLike[str]
Curve = tuple[np.ndarray, np.ndarray]  # x and y, [points]

# Okabe and Ito's colours, which colour-blind people can distinguish; their yellow is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":")  # line styles of the first seven lines, the next seven, ...
_NAMED = ("agent", "environment")  # fields of a config that labels show without their name
_CROWDED = 4  # with more lines, the legend is beside the axes, and training returns are not drawn
_SHORT = 30  # labels of up to this many characters fit side by side in two columns
_SAME_POINT = 1.1  # single points are merged if the ratio of the largest to the smallest x is at most this
_GRID = 256  # maximum number of points of a line
_KEPT = 1 << 13  # maximum number of points that are kept of a log, which can have millions of rows
_BARS = 20  # intervals of a histogram
_MARKED = 30  # lines with at most this many points have markers
BOOTSTRAP_SEEDS = 5  # minimum number of seeds for bootstrap intervals; with fewer, they would be misleading

_X_NAMES = {
    "environment_steps": "environment steps",
    "learner_steps": "learner steps",
    "wall_time_s": "wall time (s)",
}


def learning_curves(
    runs: Mapping[str, Sequence[Run]],
    out: str | os.PathLike[str],
    x: str | None = None,
    aggregate: Literal["mean", "iqm"] = "mean",
) -> Path:
    """Draws one line for each label from its runs, and returns the figure's path, whose suffix is its format.

    A line is the mean or the interquartile mean, over the label's runs, of the evaluation return (logs/evaluator.csv,
    `episode_return_mean`), interpolated on the range of `x` that all runs cover. If a run has no evaluations, training
    returns are used instead. A label with several runs also has a band: the 95% bootstrap interval of the aggregate if
    every such label has at least five runs, else from the minimum to the maximum over runs; the figure says which. The
    smoothed training returns (logs/actor.csv, `episode_return`) are drawn behind, unless there are many lines; of runs
    with one evaluation each they are always drawn.

    Args:
        runs: the runs of each label.
        out: the path of the figure.
        x: the column of the x axis; None for environment steps, or learner steps if a run learns from recorded data.
        aggregate: the average over runs: mean or interquartile mean.

    Raises:
        UsageError: a run has no logs, `x` or the format is unknown, or `out` can't be written.
    """
    check_format(Path(out))
    return save(curves_figure(runs, x, aggregate), Path(out))


def curves_figure(
    runs: Mapping[str, Sequence[Run]], x: str | None = None, aggregate: Literal["mean", "iqm"] = "mean"
) -> "Figure":
    """Returns the figure that `learning_curves` writes, from the same arguments."""
    opened = {label: [_opened(run) for run in members] for label, members in runs.items()}
    if not opened or not all(opened.values()):
        raise UsageError("a plot needs at least one run for each line.")
    crowded = len(opened) > _CROWDED
    figure = new_figure(9.6 if crowded else 6.8, 4.2, dpi=200)
    if x is None:
        x = usual_x([run for members in opened.values() for run in members])
    several = [len(members) for members in opened.values() if len(members) > 1]
    bootstrap = bool(several) and min(several) >= BOOTSTRAP_SEEDS
    axes = figure.add_subplot()
    notes = []
    for i, (label, members) in enumerate(opened.items()):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": _DASHES[i // len(COLOURS) % len(_DASHES)]}
        notes += _draw(axes, label, members, x, style, aggregate, bootstrap=bootstrap, behind=not crowded)
    if several:
        notes += ["interquartile mean of the seeds"] if aggregate == "iqm" else []
        notes.append(
            f"band: 95% bootstrap interval of the {aggregate}" if bootstrap else "band: least to greatest seed"
        )
    _dress(axes, opened, x, "; ".join(dict.fromkeys(notes)))
    # Outside the axes, so that it doesn't cover a curve.
    columns = 2 if max(map(len, opened)) <= _SHORT else 1
    place = {"loc": "outside right upper"} if crowded else {"loc": "outside upper left", "ncols": columns}
    figure.legend(**place, frameon=False, fontsize=9, handlelength=2.8)
    return figure


def histogram_figure(values: Mapping[str, np.ndarray], name: str) -> "Figure":
    """Returns a figure of the shares of values `[N]` in equal intervals, for each label; `name` says what they are."""
    figure = new_figure(6.8, 3.4)
    axes = figure.add_subplot()
    edges = np.histogram_bin_edges(np.concatenate(list(values.values())), _BARS).tolist()
    for i, (label, each) in enumerate(values.items()):
        weights, colour = np.full(len(each), 100 / len(each)), COLOURS[i % len(COLOURS)]
        axes.hist(each, edges, weights=weights, histtype="stepfilled", color=colour, alpha=0.25)
        axes.hist(each, edges, weights=weights, histtype="step", color=colour, linewidth=1.5, label=label)
    axes.set_xlabel(name)
    axes.set_ylabel("percent")
    axes.legend(frameon=False, fontsize=9)
    return figure


def check_format(out: Path) -> None:
    """Raises UsageError if a path's ending is not a figure format."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if out.suffix.lower().removeprefix(".") not in known:
        raise UsageError(f"{out} is not a name for a figure: it must end in one of {', '.join(sorted(known))}.")


def new_figure(width: float, height: float, *, dpi: int = 150) -> "Figure":
    """Returns an empty figure of a size in inches; without pyplot, which would keep it and select a backend."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=dpi, layout="constrained")


def add_grid(axes: "Axes") -> None:
    """Gives axes a pale grid, small ticks, and lines only on the left and at the bottom."""
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(color="#777777", labelsize=9)


def save(figure: "Figure", out: Path) -> Path:
    """Writes a figure in the format of the path's ending, and returns the path; raises UsageError if it can't."""
    files.make_writable_folder(out.parent)
    with files.replacing(out) as temporary:
        figure.savefig(temporary, format=out.suffix.lower().removeprefix("."))
    return out


def group_runs(paths: Iterable[Run]) -> dict[str, list[RunDirectory]]:
    """Groups runs whose configs differ only in the seed and the length of the run.

    Labels show the fields in which the groups differ, and are ordered by their values. A folder stands for all runs in
    it that have something to plot. A run that is given twice counts once. Raises UsageError for a path that is not a
    run directory and contains none.
    """
    groups: list[tuple[dict[str, Any], list[RunDirectory]]] = []
    found = [run for path in paths for run in _below(path)]
    for run in {run.path.resolve(): run for run in found}.values():
        config = {k: v for k, v in run.read_config().items() if k not in ("seed", "run", "run_dir")}
        config.update((name, display_name(config[name])) for name in _NAMED if name in config)
        # A field that is absent was added by a later version, and None leaves it unused.
        fields = {name: value for name, value in flatten(config).items() if value is not None}
        for there, members in groups:
            if there == fields:
                members.append(run)
                break
        else:
            groups.append((fields, [run]))
    groups = _sorted(groups)
    return dict(zip(_labels([fields for fields, _ in groups]), [members for _, members in groups], strict=True))


def _below(path: Run) -> list[RunDirectory]:
    """Returns the run of a directory, or all runs in a folder that have something to plot."""
    if isinstance(path, RunDirectory) or (Path(path) / "config.json").is_file() or not Path(path).is_dir():
        return [_opened(path)]
    runs = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        logs = (Path(folder, "logs", f"{label}.csv") for label in ("evaluator", "actor"))
        if "config.json" in names and any(log.is_file() for log in logs):
            folders.clear()  # don't search inside a run directory
            runs.append(RunDirectory.open(folder))
    return runs or [_opened(path)]


def _sorted(groups: list[tuple[dict[str, Any], list[RunDirectory]]]) -> list[tuple[dict[str, Any], list[RunDirectory]]]:
    """Returns groups ordered by the fields in which they differ: numbers by value, others by first appearance."""
    fields = differing_fields([config for config, _ in groups])
    seen: dict[str, list[Any]] = {field: [] for field in fields}

    def rank(config: Mapping[str, Any]) -> list[tuple[int, float]]:
        ranks = []
        for field in fields:
            value = config.get(field, ABSENT)
            if isinstance(value, int | float) and not isinstance(value, bool):
                ranks.append((1, value))
            else:
                seen[field] += [] if value in seen[field] else [value]
                ranks.append((0, seen[field].index(value)))
        return ranks

    return [groups[i] for _, i in sorted((rank(config), i) for i, (config, _) in enumerate(groups))]


def differing_fields(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the fields in which flat configs differ."""
    fields = dict.fromkeys(field for config in configs for field in config)
    return [f for f in fields if any(c.get(f, ABSENT) != configs[0].get(f, ABSENT) for c in configs)]


def _labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a distinct label for each config: agent and environment if these suffice, else also other fields."""
    if len(configs) == 1:
        return [", ".join(str(configs[0][name]) for name in _NAMED if name in configs[0]) or "run"]
    differing = differing_fields(configs)
    ends = Counter(field.rpartition(".")[2] for field in differing)

    def text(config: Mapping[str, Any], field: str) -> str:
        value, end = config.get(field, ABSENT), field.rpartition(".")[2]
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        return shown if field in _NAMED else f"{end if ends[end] == 1 else field}={shown}"

    def labels(chosen: Sequence[str]) -> list[str]:
        return [", ".join(text(config, field) for field in chosen) for config in configs]

    chosen = [field for field in _NAMED if field in differing]
    others = [field for field in differing if field not in _NAMED]
    if len(set(labels(chosen))) < len(configs):
        for field in others:
            if len(others) <= 3 or len(set(labels([*chosen, field]))) > len(set(labels(chosen))):
                chosen.append(field)
    made = labels(chosen)
    if len(set(made)) < len(made):  # values that look alike
        made = [f"{label} #{i}" for i, label in enumerate(made, 1)]
    return made


def _opened(run: Run) -> RunDirectory:
    return run if isinstance(run, RunDirectory) else RunDirectory.open(run)


def _draw(
    axes: "Axes",
    label: str,
    members: Sequence[RunDirectory],
    x: str,
    style: dict[str, Any],
    aggregate: str,
    *,
    bootstrap: bool,
    behind: bool,
) -> list[str]:
    """Draws the line of one label, and with `behind` its training returns; returns notes for the figure."""
    evaluations = [_curve(run, "evaluator", x, "episode_return_mean") for run in members]
    # Episodes are logged by environment steps and time only.
    by_steps = x == "learner_steps"
    episodes = [
        None if by_steps and evaluation is not None else _curve(run, "actor", x, "episode_return")
        for run, evaluation in zip(members, evaluations, strict=True)
    ]
    for run, evaluation, episode in zip(members, evaluations, episodes, strict=True):
        if evaluation is None and episode is None:
            raise UsageError(
                f"{run.path} has nothing to plot: there are neither evaluations nor episodes in {run.logs}."
            )
    evaluated = [curve for curve in evaluations if curve is not None]
    training = [_smooth(*curve) for curve in episodes if curve is not None]
    if len(evaluated) == len(members):
        curves, notes = evaluated, ["lines: evaluation"]
        single = all(len(xs) == 1 for xs, _ in evaluated)
        if (behind or single) and len(training) == len(members):
            grid, values = _on_one_grid(training, label, x)
            axes.plot(grid, _aggregated(values, aggregate), **style, alpha=0.35, linewidth=1.0, zorder=2)
            notes.append("thin: training, smoothed")
    elif len(training) == len(members):
        curves, notes = training, [f"{label}: training, smoothed"]
    else:
        raise UsageError(f"the runs of {label!r} have no curve in common: some only evaluations, others only episodes.")

    grid, values = _on_one_grid(curves, label, x)
    seeds = {run.read_config().get("seed", run.path) if run.exists_run() else run.path for run in members}
    what = "seeds" if len(seeds) == len(members) else "runs"
    name = f"{label} ({len(members)} {what})" if len(members) > 1 else label
    marker = "o" if len(grid) <= _MARKED else None
    line = _aggregated(values, aggregate)
    axes.plot(grid, line, **style, linewidth=2.0, marker=marker, markersize=3.5, label=name, zorder=4)
    if len(members) > 1:
        low, high = _interval(values, aggregate) if bootstrap else (values.min(0), values.max(0))
        axes.fill_between(grid, low, high, color=style["color"], alpha=0.18, linewidth=0, zorder=3)
    return notes


def _dress(axes: "Axes", opened: Mapping[str, Sequence[RunDirectory]], x: str, note: str) -> None:
    from matplotlib.ticker import EngFormatter

    configs = [run.read_config() for members in opened.values() for run in members if run.exists_run()]
    environments = {display_name(config["environment"]) for config in configs if "environment" in config}
    if len(environments) == 1:
        axes.set_title(environments.pop(), fontsize=11)
    axes.set_xlabel(_X_NAMES.get(x, x.replace("_", " ")))
    axes.set_ylabel("episode return")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.02)
    low, high = axes.dataLim.intervalx
    if 0 < high <= _SAME_POINT * low:  # single points only: the axis would show a range that means nothing
        axes.set_xlim(0, 1.02 * high)
    add_grid(axes)
    axes.spines[["left", "bottom"]].set_color("#777777")
    if note:
        axes.annotate(note, (1.0, -0.15), xycoords="axes fraction", ha="right", va="top", fontsize=7, color="#666666")


def _curve(run: RunDirectory, label: str, x: str, y: str) -> Curve | None:
    """Returns the finite points of two columns, ascending in x, or None if there are none.

    If there are more than `_KEPT`, each point is the mean of the same number of consecutive rows.
    """
    path = loggers.csv_path(run, label)
    means = _Means()
    if path.is_file() and path.stat().st_size:
        for block in loggers.read_blocks(path, (x, y)):
            rows = np.array([block[x], block[y]], float)
            means.add(rows[:, np.isfinite(rows).all(0)])
    xs, ys = means.points()
    order = np.argsort(xs, kind="stable")
    return (xs[order], ys[order]) if len(order) else None


class _Means:
    """At most `_KEPT` means of equal numbers of consecutive rows, for any number of rows."""

    def __init__(self):
        self._size = 1  # rows of a point
        self._points = self._rest = np.zeros((2, 0))

    def add(self, rows: np.ndarray) -> None:
        """Adds rows, `[2, rows]`."""
        rows = np.concatenate([self._rest, rows], axis=1)
        while count := min(rows.shape[1] // self._size, _KEPT - self._points.shape[1]):
            taken, rows = np.split(rows, [count * self._size], axis=1)
            self._points = np.concatenate([self._points, taken.reshape(2, count, -1).mean(2)], axis=1)
            if self._points.shape[1] == _KEPT:
                self._points, self._size = self._points.reshape(2, -1, 2).mean(2), 2 * self._size
        self._rest = rows

    def points(self) -> np.ndarray:
        """Returns the points, `[2, points]`; the last one can be the mean of fewer rows."""
        rest = self._rest.mean(1, keepdims=True) if self._rest.shape[1] else self._rest
        return np.concatenate([self._points, rest], axis=1)


def _smooth(x: np.ndarray, y: np.ndarray) -> Curve:
    """Returns a moving average over a fiftieth of all episodes, at least 5; the window is halved at the ends."""
    half = max(5, len(y) // 50) // 2
    sums = np.concatenate([[0.0], np.cumsum(y)])
    centre = np.arange(len(y))
    first, last = np.maximum(centre - half, 0), np.minimum(centre + half, len(y) - 1)
    return x, (sums[last + 1] - sums[first]) / (last + 1 - first)


def _on_one_grid(curves: Sequence[Curve], label: str, x: str) -> tuple[np.ndarray, np.ndarray]:
    """Interpolates curves on the range that all of them cover; returns the grid `[points]` and values `[runs, points]`.

    If each curve has one point, and all are at nearly the same x, they are treated as one point; points over time are
    so wherever they are, because the same training takes more time on one machine than on another.
    """
    start, end = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    near = start <= _SAME_POINT * end or x == "wall_time_s"
    if start > end and near and all(len(xs) == 1 for xs, _ in curves):
        return np.array([(start + end) / 2]), np.stack([ys for _, ys in curves])
    if start > end:
        raise UsageError(f"the runs of {label!r} have no range of {x!r} in common: plot them separately.")
    grid = np.unique(np.concatenate([xs for xs, _ in curves]))
    grid = grid[(grid >= start) & (grid <= end)]
    if len(grid) > _GRID:
        grid = np.linspace(start, end, _GRID)
    return grid, np.stack([np.interp(grid, xs, ys) for xs, ys in curves])


def _aggregated(values: np.ndarray, aggregate: str) -> np.ndarray:
    """Returns the aggregate `[...]` of the runs' values `[runs, ...]`."""
    return values.mean(0) if aggregate == "mean" else interquartile_mean(values)


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Returns the mean `[...]` of the middle half of values `[runs, ...]`.

    A quarter of the values, rounded down, is removed at each end (Agarwal et al. 2021,
    https://arxiv.org/abs/2108.13264, and the authors' library rliable).
    """
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def _interval(values: np.ndarray, aggregate: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ends of the 95% bootstrap interval of the aggregate over the runs; resampling is deterministic."""
    drawn = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    aggregates = [_aggregated(values[rows], aggregate) for rows in drawn]
    low, high = np.percentile(aggregates, [2.5, 97.5], axis=0)
    return low, high


def usual_x(runs: Sequence[RunDirectory]) -> str:
    """Returns the default x axis: environment steps, or learner steps if a run has learned from recorded data."""
    of_data = any("data" in run.read_config() for run in runs if run.exists_run())
    return "learner_steps" if of_data else "environment_steps"
