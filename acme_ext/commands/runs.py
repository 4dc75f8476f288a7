"""The commands `acme-ext plot`, `acme-ext watch` and `acme-ext report`, which show runs from their files."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Adds the commands."""
    plot = commands.add_parser(
        "plot",
        help="plot the learning curves of runs",
        description="Plot learning curves. Runs that differ only in their seeds become one line with a band.",
    )
    plot.add_argument("runs", nargs="+", metavar="RUN", help="run directories, or folders that contain them")
    plot.add_argument("-o", "--output", default="curves.png", metavar="FILE", help="the figure (%(default)s)")
    plot.add_argument(
        "--x",
        metavar="COLUMN",
        help="the x axis: environment_steps, learner_steps or wall_time_s (environment_steps; learner_steps if a run "
        "learns from recorded data)",
    )
    plot.add_argument(
        "--aggregate",
        choices=("iqm", "mean"),
        default="iqm",
        help="the average over seeds: interquartile mean or mean (%(default)s)",
    )
    plot.set_defaults(command=_plot)

    watch = commands.add_parser(
        "watch",
        help="show the progress of a run",
        description="Show a run's progress, speed, replay and learning curve from its files. Updates every second "
        "while the run continues.",
    )
    watch.add_argument("run", metavar="RUN", help="a run directory; the run may be on another host with a shared disk")
    watch.add_argument("--once", action="store_true", help="print once, as when the output is not a terminal")
    watch.set_defaults(command=_watch)

    report = commands.add_parser(
        "report",
        help="write a page about runs",
        description="Write one HTML file about runs: scores, curves, differences, configs, versions and videos.",
    )
    report.add_argument("runs", nargs="+", metavar="RUN", help="run directories, or folders that contain them")
    report.add_argument("-o", "--output", default="report.html", metavar="FILE", help="the file (%(default)s)")
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
