"""Functions for the benchmarks that compare settings over several seeds of compiled runs."""

import argparse
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from acme_ext.errors import UsageError
from acme_ext.utils import files, plots
from benchmarks.learning import outcomes
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome
from benchmarks.learning.settings import Setting
from benchmarks.shared import command

Found = Mapping[str, Sequence[Outcome]]
"""The results of the seeds of each setting."""


def parser(name: str, doc: str | None, steps: int) -> argparse.ArgumentParser:
    """Returns the parser of a command `python -m benchmarks.learning.NAME`.

    Args:
        name: name of the module in `benchmarks.learning`.
        doc: description of the command.
        steps: default number of environment steps.
    """
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.learning.{name}",
        description=f"{doc} The runs are compiled. Finished runs are not run again; stopped runs are resumed.",
    )
    made.add_argument("--steps", type=int, default=steps, metavar="N", help="environment steps (%(default)s)")
    made.add_argument("--seeds", type=int, default=3, metavar="N", help="number of seeds, from --seed on (%(default)s)")
    made.add_argument("--seed", type=int, default=0, metavar="N", help="first seed (%(default)s)")
    command.add(made, "fresh", runs=learning.RUNS / name, out=learning.RESULTS)
    return made


def run(
    options: argparse.Namespace,
    settings: Mapping[str, Setting],
    name: str,
    head: Sequence[str],
    draw: Callable[[Found, Any], None],
) -> int:
    """Runs settings, writes the page and its figure, and prints the page; returns the exit code.

    Args:
        options: the parsed options of `parser`.
        settings: the settings to compare, by their names on the page; a name can have several table cells, separated by
            `|`.
        name: name of the page's file.
        head: the page's lines above the table; the last one is the name of the table's first column.
        draw: plots the figure on the given axes.
    """
    if options.seeds < 1 or options.steps < 1:
        raise UsageError("--seeds and --steps must be at least 1.")
    files.make_writable_folder(options.out)
    found: dict[str, list[Outcome]] = {}
    for key, setting in settings.items():
        folder = re.sub(r"[^\w.]+", "-", key.lower())
        found[key] = []
        for seed in range(options.seed, options.seed + options.seeds):
            # One seed at a time: in one program, all seeds would make a learner step when a step of one seed is due.
            experiment = setting.experiment(seed, options.steps, options.runs / folder / f"s{seed}")
            _, code = learning.run_at_once(experiment, 1, fresh=options.fresh)
            if code:
                return code
            found[key].append(outcomes.read(experiment, 1))
        print(f"{key}: {', '.join(f'{o.score:.2f}' for o in found[key])}", flush=True)
    out = options.out / name
    _save(found, draw, out.with_suffix(".png"))
    text = page(found, name, head)
    files.write_text(out.with_suffix(".md"), text)
    print(text)
    faults = [f"{key} seed {o.seed}: {o.fault}" for key, of_seeds in found.items() for o in of_seeds if o.fault]
    print("; ".join(faults))
    return 1 if faults else 0


def page(found: Found, name: str, head: Sequence[str]) -> str:
    """Returns the page as Markdown; see `run`."""
    columns = head[-1].count("|") + 1
    lines = [f"# {name}", "", *head[:-1], ""]
    lines.append(f"| {head[-1]} | mean of the seeds | least seed | greatest seed | each seed | seconds a seed |")
    lines.append(f"|{'---|' * columns}--:|--:|--:|---|--:|")
    for key, of_seeds in found.items():
        scores = np.array([o.score for o in of_seeds])
        each = ", ".join(f"{o.seed}: {o.score:.2f}" for o in of_seeds)
        wall = np.mean([o.wall_time_s for o in of_seeds])
        cells = (f"{scores.mean():.3f}", f"{scores.min():.2f}", f"{scores.max():.2f}", each, f"{wall:.0f}")
        lines.append(f"| {key} | {' | '.join(cells)} |")
    lines += ["", f"![{name}]({name}.png)", ""]
    facts = outcomes.machine([o for of_seeds in found.values() for o in of_seeds])
    lines.append(", ".join(f"{name} {value}" for name, value in facts.items()) + ".")
    return "\n".join(lines) + "\n"


def _save(found: Found, draw: Callable[[Found, Any], None], out: pathlib.Path) -> None:
    figure = plots.new_figure(5, 3.2)
    axes = figure.subplots()
    draw(found, axes)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    plots.save(figure, out)
