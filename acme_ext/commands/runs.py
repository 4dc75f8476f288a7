"""`acme-ext plot`, `acme-ext watch` and `acme-ext report`: what runs have come to, from their files."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Adds the commands."""
    plot = commands.add_parser(
        "plot",
        help="plot the learning curves of runs",
        description="Plot learning curves; runs that differ in their seed alone become one line with a band.",
    )
    plot.add_argument("runs", nargs="+", metavar="RUN", help="run directories, or folders with such in them")
    plot.add_argument("-o", "--output", default="curves.png", metavar="FILE", help="(%(default)s)")
    plot.add_argument(
        "--x",
        metavar="COLUMN",
        help="environment_steps, learner_steps or wall_time_s (the first; the second if a run has no environment)",
    )
    plot.add_argument(
        "--aggregate", choices=("iqm", "mean"), default="iqm", help="of seeds: the interquartile mean, or the mean"
    )
    plot.set_defaults(command=_plot)

    watch = commands.add_parser(
        "watch",
        help="show how a run is doing",
        description="Show a run's progress, speed, replay and curve from its files; anew every second while it runs.",
    )
    watch.add_argument("run", metavar="RUN", help="a run directory, also of a run on another host that shares the disk")
    watch.add_argument("--once", action="store_true", help="print it once, as where the output is no terminal")
    watch.set_defaults(command=_watch)

    report = commands.add_parser(
        "report",
        help="write a page about runs",
        description="Write one HTML file about runs: scores, curves, what differs, configs, versions and films.",
    )
    report.add_argument("runs", nargs="+", metavar="RUN", help="run directories, or folders with such in them")
    report.add_argument("-o", "--output", default="report.html", metavar="FILE", help="(%(default)s)")
    report.set_defaults(command=_report)


def _plot(options: argparse.Namespace) -> int:
    from acme_ext.utils import plots

    print(plots.learning_curves(plots.group_runs(options.runs), options.output, options.x, options.aggregate))
    return 0


def _watch(options: argparse.Namespace) -> int:
    from acme_ext.commands.watch import watch

    watch(options.run, once=options.once)
    return 0


def _report(options: argparse.Namespace) -> int:
    from acme_ext.commands import report

    print(report.write_report(options.runs, options.output))
    return 0
