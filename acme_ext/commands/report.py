"""Writes a page about runs, one self-contained HTML file, for `acme-ext report`."""

import base64
import datetime
import html
import importlib.metadata
import io
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

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6570; --line: #d5dae0; --paper: #ffffff; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa5b1; --line: #39424d; --paper: #12161b;
  --card: #1a2027; } }
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
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .75rem; overflow-x: auto;
  font-size: .85rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
video, img { max-width: 100%; height: auto; }
figure > img { background: #fff; border-radius: 6px; }
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
    names = dict.fromkeys(_name(run) for run in everything)
    title = " and ".join(names) if len(groups) == 1 else f"{len(groups)} settings"
    made = datetime.datetime.now().astimezone()
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{len(everything)} run{'s' * (len(everything) > 1)}, of {html.escape(', '.join(names))}; the page is of "
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
        for rows in loggers.read_blocks(path, (x, "wall_time_s")) if path.is_file() else ():
            ends += zip(rows[x][-1:].tolist(), rows["wall_time_s"][-1:].tolist(), strict=True)
    return max(ends)


def _charts(groups: Mapping[str, Sequence[RunDirectory]], x: str) -> list[str]:
    parts = []
    for axis, name in ((x, x.replace("_", " ")), ("wall_time_s", "wall time")):
        try:
            drawn = _figure(plots.curves_figure(groups, axis, "iqm"), f"returns by {name}")
        except UsageError as error:  # runs of very different speed may have no common range of times
            drawn = f"<p>{html.escape(str(error))}</p>"
        parts += [f"<h2>Returns, by {html.escape(name)}</h2>", drawn]
    returns = {label: np.concatenate([_returns(run) for run in members]) for label, members in groups.items()}
    if returns := {label: values for label, values in returns.items() if len(values)}:
        name = "return of an episode of the last evaluation"
        figure = plots.histogram_figure(returns, name)
        parts += ["<h2>Episodes of the last evaluation</h2>", _figure(figure, name)]
    return parts


def _figure(figure: Any, name: str) -> str:
    """Returns a figure as an image in the page."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg")
    data = base64.b64encode(drawn.getvalue()).decode()
    return f'<figure><img alt="{html.escape(name)}" src="data:image/svg+xml;base64,{data}"></figure>'


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
