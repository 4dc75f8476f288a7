"""Writes a page about runs, one self-contained HTML file, for `acme-ext report`."""

import base64
import datetime
import html
import importlib.metadata
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import acme_ext
from acme_ext.config.comparison import ABSENT, flatten
from acme_ext.config.values import display_name
from acme_ext.errors import UsageError
from acme_ext.utils import files, loggers, plots, progress
from acme_ext.utils.rundir import RunDirectory

_PACKAGES = ("jax", "dm-acme", "dm-reverb", "dm-launchpad", "dm-haiku", "optax", "numpy", "gymnasium")
_VIDEOS = {".mp4": "video/mp4", ".gif": "image/gif"}
_VIDEO_BYTES = 32 * 2**20  # larger ones are only named
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 300, 64, 34  # of a chart, in its own units
_BARS = 20

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6570; --line: #d5dae0; --paper: #ffffff; --card: #f6f8fa;
  --c0: #0072b2; --c1: #c44e00; --c2: #00805c; --c3: #a8467f; --c4: #8a6100; --c5: #1f83bd; --c6: #444b54; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa5b1; --line: #39424d; --paper: #12161b;
  --card: #1a2027; --c0: #56b4e9; --c1: #f08a4b; --c2: #37c498; --c3: #e199c5; --c4: #e6b23c; --c5: #8ecbf0;
  --c6: #c3cad2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .5rem; }
p, figcaption { color: var(--soft); margin: .25rem 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .9rem .3rem 0; text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
td.n, th.n { text-align: right; white-space: nowrap; }
figure { margin: .5rem 0; overflow-x: auto; }
svg { display: block; width: 100%; min-width: 30rem; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .75rem; overflow-x: auto;
  font-size: .85rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
video, img { max-width: 100%; height: auto; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; color: var(--ink); }
.key i { display: inline-block; width: 1.6em; height: 0; border-top: 3px solid; vertical-align: middle;
  margin-right: .4em; }
.videos { display: flex; flex-wrap: wrap; gap: 1rem; }
"""


def write_report(paths: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Writes a page about runs, and returns its path.

    The page has the returns of the final evaluation, learning curves by steps and by time, a histogram of the final
    evaluation's episodes, the fields in which the runs differ, their configs and versions, and the videos in the run
    directories.

    Args:
        paths: run directories, or folders that contain run directories.
        out: the file to write, which ends in `.html`.

    Raises:
        UsageError: a path is no run directory, or `out` is another kind of file.
    """
    out = Path(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{out} is not a name for a page: it must end in .html.")
    groups = plots.group_runs(paths)
    everything = [run for members in groups.values() for run in members]
    x = plots.usual_x(everything)
    title = (
        " and ".join(dict.fromkeys(_name(run) for run in everything)) if len(groups) == 1 else f"{len(groups)} settings"
    )
    made = datetime.datetime.now().astimezone()
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{len(everything)} run{'s' * (len(everything) > 1)}, of {html.escape(_common(everything))}; the page is of "
        f"{made:%Y-%m-%d %H:%M %Z}.</p>",
        "<h2>Last evaluation</h2>",
        "<p>Std, least and greatest are of the runs' means, or for a single run of its episodes.</p>",
        _table(("", "ended", "mean", "std", "least", "greatest", "steps", "time"), _scores(groups, x)),
        *_charts(groups, x),
        *_differences(groups),
        *_videos(everything),
        "<h2>Configs</h2>",
        *(_config(label, run) for label, members in groups.items() for run in members),
        "<h2>Versions</h2>",
        _table(("", ""), _versions(everything)),
    ]
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )
    files.make_writable_folder(out.parent)
    files.write_text(out, page)
    return out


def _name(run: RunDirectory) -> str:
    config = run.read_config()
    return f"{display_name(config['agent'])} on {display_name(config['environment'])}"


def _common(runs: Sequence[RunDirectory]) -> str:
    return ", ".join(dict.fromkeys(_name(run) for run in runs))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns an HTML table; columns that contain only numbers are right-aligned."""

    def cell(text: str, tag: str, *, number: bool) -> str:
        return f"<{tag}{' class=n' if number else ''}>{html.escape(text)}</{tag}>"

    rows = [list(row) for row in rows]
    numeric = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(header))]
    lines = ["".join(cell(text, "td", number=n) for text, n in zip(row, numeric, strict=True)) for row in rows]
    head = "".join(cell(text, "th", number=n) for text, n in zip(header, numeric, strict=True))
    head = f"<tr>{head}</tr>" if any(header) else ""
    return f'<div class="wide"><table>{head}{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>'


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-|-?[\d.,:/]+(e[+-]?\d+)?", text) is not None


def _returns(run: RunDirectory) -> np.ndarray:
    """Returns the episode returns of a run's final evaluation, `[episodes]`; empty if the run has not finished."""
    return np.asarray(run.read_evaluation()["returns"], float) if run.evaluation.is_file() else np.zeros(0)


def _scores(groups: Mapping[str, Sequence[RunDirectory]], x: str) -> Iterable[Sequence[str]]:
    for label, members in groups.items():
        evaluated = [returns for run in members if len(returns := _returns(run))]
        # Of a single run, its episodes.
        scores = evaluated[0] if len(members) == len(evaluated) == 1 else np.array([each.mean() for each in evaluated])
        values = [f"{f(scores):.4g}" for f in (np.mean, np.std, np.min, np.max)] if len(scores) else ["-"] * 4
        ends = [_end(run, x) for run in members]
        steps, seconds = max(end[0] for end in ends), max(end[1] for end in ends)
        yield label, f"{len(evaluated)}/{len(members)}", *values, f"{steps:,.0f}", progress.duration(seconds)


def _end(run: RunDirectory, x: str) -> tuple[float, float]:
    """Returns the steps and seconds of a run's last row in the logs of evaluator and learner."""
    ends = [(0.0, 0.0)]
    for label in ("evaluator", "learner"):
        path = loggers.csv_path(run, label)
        rows = loggers.read_csv(path) if path.is_file() else {}
        if len(rows.get(x, ())):
            ends.append((float(rows[x][-1]), float(rows["wall_time_s"][-1])))
    return max(ends)


def _charts(groups: Mapping[str, Sequence[RunDirectory]], x: str) -> list[str]:
    several = [len(members) for members in groups.values() if len(members) > 1]
    bootstrap = bool(several) and min(several) >= plots.BOOTSTRAP_SEEDS
    parts = []
    for axis in (x, "wall_time_s"):
        lines, failures = {}, []
        for number, (label, members) in enumerate(groups.items()):
            try:
                if (line := plots.line_of(members, label, axis, bootstrap=bootstrap)) is not None:
                    lines[label] = (number, line)
            except UsageError as error:  # runs of very different speed may have no common range of times
                failures.append(f"<p>{html.escape(str(error))}</p>")
        name = plots.X_NAMES[axis]
        heading = f"<h2>Evaluations, by {html.escape(name)}</h2>"
        drawn = [_key(lines), _curves(lines, name)] if lines else []
        parts += [heading, *drawn, *failures] if lines or failures else []
    if parts and several:
        band = "the 95% bootstrap interval of it" if bootstrap else "from the least to the greatest run"
        parts.append(f"<p>Lines are the interquartile mean of the runs, bands {band}.</p>")
    returns = {label: np.concatenate([_returns(run) for run in members]) for label, members in groups.items()}
    bars = {label: (i, values) for i, (label, values) in enumerate(returns.items()) if len(values)}
    if bars:
        parts += ["<h2>Episodes of the last evaluation</h2>", _key(bars), _histogram(bars)]
    return parts


def _key(lines: Mapping[str, tuple[int, Any]]) -> str:
    items = [
        f'<span><i style="border-color:{_colour(i)}"></i>{html.escape(label)}</span>' for label, (i, _) in lines.items()
    ]
    return f'<div class="key">{"".join(items)}</div>'


def _colour(number: int) -> str:
    return f"var(--c{number % 7})"


def _curves(lines: Mapping[str, tuple[int, plots.Line]], name: str) -> str:
    all_x = np.concatenate([line.x for _, line in lines.values()])
    all_y = np.concatenate([part for _, line in lines.values() for part in (line.low, line.high)])
    frame = _Frame(all_x, all_y)
    shapes = []
    for number, line in lines.values():
        colour, dash = _colour(number), "" if number < 7 else ' stroke-dasharray="6 4"'
        if (line.high > line.low).any():
            corners = [*zip(line.x, line.low, strict=True), *zip(line.x[::-1], line.high[::-1], strict=True)]
            shapes.append(f'<polygon points="{frame.points(corners)}" style="fill:{colour}" fill-opacity="0.16"/>')
        points = frame.points(zip(line.x, line.y, strict=True))
        shapes.append(f'<polyline points="{points}" fill="none" style="stroke:{colour}" stroke-width="2"{dash}/>')
    return frame.figure(shapes, name)


def _histogram(bars: Mapping[str, tuple[int, np.ndarray]]) -> str:
    values = np.concatenate([returns for _, returns in bars.values()])
    edges = np.histogram_bin_edges(values, _BARS)
    counts = {number: np.histogram(returns, edges)[0] / len(returns) for number, returns in bars.values()}
    frame = _Frame(edges, np.array([0, 100 * max(share.max() for share in counts.values())]))
    shapes = []
    for number, shares in counts.items():
        corners = [(edges[0], 0.0)]
        for share, low, high in zip(shares, edges, edges[1:], strict=False):
            corners += [(low, 100 * share), (high, 100 * share)]
        corners.append((edges[-1], 0.0))
        style = f'style="fill:{_colour(number)};stroke:{_colour(number)}" fill-opacity="0.25" stroke-width="1.5"'
        shapes.append(f'<polygon points="{frame.points(corners)}" {style}/>')
    return frame.figure(shapes, "return of an episode, and percent of the episodes")


class _Frame:
    """The axes of a chart, which cover all its values."""

    def __init__(self, x: np.ndarray, y: np.ndarray):
        self.x, self.y = _span(x), _span(y)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Returns a point's position in the chart."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return _LEFT + across * (_WIDTH - _LEFT - 12), (_HEIGHT - _BOTTOM) - up * (_HEIGHT - _BOTTOM - 10)

    def points(self, corners: Iterable[tuple[float, float]]) -> str:
        return " ".join("{:.1f},{:.1f}".format(*self.place(x, y)) for x, y in corners)

    def figure(self, shapes: Sequence[str], name: str) -> str:
        """Returns the chart with its axes; `name` is its caption, which describes the x axis."""
        parts = []
        for value in _ticks(*self.y):
            _, top = self.place(self.x[0], value)
            parts.append(
                f'<line x1="{_LEFT}" x2="{_WIDTH - 12}" y1="{top:.1f}" y2="{top:.1f}" style="stroke:var(--line)"/>'
            )
            parts.append(f'<text x="{_LEFT - 8}" y="{top + 4:.1f}" text-anchor="end">{value:.4g}</text>')
        for value in _ticks(*self.x):
            left, _ = self.place(value, self.y[0])
            anchor = "end" if left > _WIDTH - 32 else "middle"
            parts.append(f'<text x="{left:.1f}" y="{_HEIGHT - 14}" text-anchor="{anchor}">{_short(value)}</text>')
        view = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(name)}"'
        drawn = f"<svg {view}>{''.join([*parts, *shapes])}</svg>"
        return f"<figure>{drawn}<figcaption>{html.escape(name)}</figcaption></figure>"


def _span(values: np.ndarray) -> tuple[float, float]:
    low, high = float(np.min(values)), float(np.max(values))
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _ticks(low: float, high: float) -> np.ndarray:
    """Returns round values from `low` to `high`."""
    from matplotlib.ticker import MaxNLocator  # imported here, because a page without a chart doesn't need it

    values = np.asarray(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))
    return values[(values >= low) & (values <= high)]


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _differences(groups: Mapping[str, Sequence[RunDirectory]]) -> list[str]:
    configs = [flatten(_described(members[0])) for members in groups.values()]
    if len(configs) < 2:
        return []
    fields = plots.differing_fields(configs)
    rows = [(field, *(str(config.get(field, ABSENT)) for config in configs)) for field in fields]
    return ["<h2>What differs</h2>", _table(("field", *groups), rows)]


def _described(run: RunDirectory) -> dict[str, Any]:
    return {name: value for name, value in run.read_config().items() if name not in ("seed", "run")}


def _videos(runs: Sequence[RunDirectory]) -> list[str]:
    parts = []
    for path in [path for run in runs for path in sorted(run.path.iterdir()) if path.suffix.lower() in _VIDEOS]:
        if path.stat().st_size > _VIDEO_BYTES:
            parts.append(f"<p>{html.escape(str(path))} is too large for this page.</p>")
            continue
        kind = _VIDEOS[path.suffix.lower()]
        data = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
        shown = f'<video controls src="{data}"></video>' if kind.startswith("video") else f'<img alt="" src="{data}">'
        parts.append(f"<figure>{shown}<figcaption>{html.escape(str(path))}</figcaption></figure>")
    return ["<h2>Videos</h2>", '<div class="videos">', *parts, "</div>"] if parts else []


def _config(label: str, run: RunDirectory) -> str:
    text = html.escape(files.json_text(run.read_config()))
    seed = run.read_config().get("seed")
    return f"<details><summary>{html.escape(f'{label}, seed {seed}: {run.path}')}</summary><pre>{text}</pre></details>"


def _versions(runs: Sequence[RunDirectory]) -> Iterable[Sequence[str]]:
    of_runs = dict.fromkeys(str(run.read_config()["run"].get("version", "unknown")) for run in runs)
    yield "acme_ext, of the runs", ", ".join(of_runs)
    yield "acme_ext, of this page", acme_ext.__version__
    for name in _PACKAGES:
        try:
            yield f"{name}, where the page was made", importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
