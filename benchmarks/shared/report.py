"""Measured figures and their references: as a table, as JSON and as Markdown."""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import os
import pathlib
import platform
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from acme_ext.utils import files, system
from benchmarks.shared.measure import Rate

_PACKAGES = (
    "acme-ext",
    "dm-acme",
    "dm-reverb",
    "tensorflow-cpu",
    "jax",
    "jaxlib",
    "dm-haiku",
    "optax",
    "numpy",
    "gymnasium",
)


@dataclasses.dataclass(frozen=True)
class Reference:
    """A reference value that a figure is compared with.

    Attributes:
        name: name of the reference.
        value: its value in the figure's unit.
        ratio: the figure divided by it.
        goal: the minimum ratio, or None if the reference is only for comparison.
        cpu_us: CPU time of the whole process per unit, in microseconds; None if it wasn't measured.
        source: `measured` in turns with the figure, or `computed` from such measurements.
        spread: minimum and maximum of the rounds' ratios; None if there was only one round.
    """

    name: str
    value: float
    ratio: float
    goal: float | None = None
    cpu_us: float | None = None
    source: Literal["measured", "computed"] = "measured"
    spread: tuple[float, float] | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        return None if self.goal is None else self.ratio >= self.goal


@dataclasses.dataclass(frozen=True)
class Figure:
    """A measured rate of this project."""

    section: str
    name: str
    unit: str
    value: float
    low: float  # minimum over rounds
    high: float  # maximum over rounds
    cpu_us: float | None  # CPU time of the whole process per unit, us; None if it wasn't measured
    references: tuple[Reference, ...]


def figure(section: str, name: str, unit: str, rate: Rate, references: Iterable[Reference]) -> Figure:
    """Returns the figure of a measured rate."""
    return Figure(
        section, name, unit, rate.per_second, min(rate.rounds), max(rate.rounds), rate.cpu_us, tuple(references)
    )


def against(
    ours: Rate,
    name: str,
    theirs: Rate,
    goal: float | None = None,
    source: Literal["measured", "computed"] = "measured",
) -> Reference:
    """Returns the reference for a rate that was measured in turns with ours, or computed from such measurements."""
    ratios = [a / b for a, b in zip(ours.rounds, theirs.rounds, strict=True)]
    spread = (min(ratios), max(ratios)) if len(ratios) > 1 else None
    return Reference(name, theirs.per_second, ours.over(theirs), goal, theirs.cpu_us, source, spread)


def machine(*, after: bool = False) -> dict[str, Any]:
    """Returns the facts about the machine that the figures depend on, without host names or paths.

    With `after`, they are read after the measurement, so that the load is partly its own.
    """
    model = ""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else ""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "cores": system.available_cores(),
        "processor": model or platform.machine(),
        "load_after" if after else "load_before": load(),
        "python": platform.python_version(),
        **dict(_versions()),
    }


def device() -> dict[str, str]:
    """Returns the fact about the accelerator that JAX uses, if there is one.

    This starts JAX, which takes the accelerator's memory. Don't call it before other processes use the accelerator.
    """
    import jax

    used = jax.local_devices()[0]
    return {} if used.platform == "cpu" else {"device": used.device_kind}


def _versions() -> Iterator[tuple[str, str]]:
    """Yields the packages' names and versions; on another Python than 3.10, some aren't installed."""
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def load() -> float:
    """Returns the average number of runnable threads over the last minute."""
    return round(os.getloadavg()[0], 2)


def table(figures: Sequence[Figure]) -> str:
    """Returns the figures as aligned text, with a line for each reference."""
    header = ("", "ours", "CPU us", "against", "theirs", "CPU us", "ours/theirs", "goal", "")
    lines: list[str] = []
    for section in dict.fromkeys(f.section for f in figures):
        members = [f for f in figures if f.section == section]
        rows = [header, *(row for f in members for row in _rows(f))]
        widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
        lines += [f"{section} ({', '.join(dict.fromkeys(f.unit for f in members))})"]
        for row in rows:
            cells = (
                cell.ljust(width) if i in (0, 3, 8) else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  " + "  ".join(cells).rstrip())
        lines.append("")
    return "\n".join(lines)


def markdown(figures: Sequence[Figure], facts: dict[str, Any]) -> str:
    """Returns the figures as a Markdown page."""
    machine = ", ".join(f"{name} {value}" for name, value in facts.items() if name != "command")
    lines = [
        "# Speed",
        "",
        f"Each figure beside what it is held against, made by `{facts['command']}`. Measured ones took",
        "turns with ours in short rounds of the same run; a ratio is the median of the rounds' ratios, with the least",
        "and the greatest of them. Sections of whole runs (training, onpolicy, peers, program) make a fifth of the",
        "rounds, but at least one. CPU is the time of the whole process for a unit, all threads. The load is that of",
        "the last minute, this benchmark's own included while it runs.",
        "",
        f"{machine}.",
    ]
    for section in dict.fromkeys(f.section for f in figures):
        members = [f for f in figures if f.section == section]
        unit = ", ".join(dict.fromkeys(f.unit for f in members))
        lines += [
            "",
            f"## {section}",
            "",
            f"| | {unit} | CPU us | against | its {unit} | CPU us | ratio | goal | |",
            "|---|--:|--:|---|--:|--:|--:|--:|---|",
            *("| " + " | ".join(row) + " |" for f in members for row in _rows(f)),
        ]
    return "\n".join(lines) + "\n"


def write(out: pathlib.Path, figures: Sequence[Figure], facts: dict[str, Any]) -> list[pathlib.Path]:
    """Writes the figures to `out` with the extensions .json and .md; returns the two paths."""
    files.make_writable_folder(out.parent)
    paths = [out.with_suffix(".json"), out.with_suffix(".md")]
    plain = [
        {**dataclasses.asdict(f), "references": [{**dataclasses.asdict(r), "met": r.met} for r in f.references]}
        for f in figures
    ]
    files.write_json(paths[0], {"machine": facts, "figures": plain})
    files.write_text(paths[1], markdown(figures, facts))
    return paths


def _rows(f: Figure) -> list[tuple[str, ...]]:
    own = (f.name, number(f.value), number(f.cpu_us))
    rows = []
    for r in f.references or (None,):
        if r is None:
            rows.append((*own, "", "", "", "", "", ""))
        else:
            verdict = "" if r.met is None else "met" if r.met else "MISSED"
            name = r.name if r.source == "measured" else f"{r.name} [{r.source}]"
            goal = "" if r.goal is None else f"{r.goal:g}"
            spread = "" if r.spread is None else f" ({r.spread[0]:.2f} to {r.spread[1]:.2f})"
            rows.append((*own, name, number(r.value), number(r.cpu_us), f"{r.ratio:.2f}{spread}", goal, verdict))
        own = ("", "", "")
    return rows


def number(value: float | None) -> str:
    """Returns a number with three significant digits and thousands separators; an empty string for None."""
    if value is None:
        return ""
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"
