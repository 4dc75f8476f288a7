"""Functions that several commands use."""

import argparse
from typing import Any


def count(text: str) -> int:
    """Parses an option's text as a whole number above 0; raises ArgumentTypeError if it is none."""
    try:
        value = int(text.replace("_", ""))
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return value


ACTING = "replace a setting of the run that changes how the agent acts, such as noise_stddev=0.5"
"""The help of `--set` in commands that use a trained agent."""


def add_set(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds the option `--set FIELD=VALUE`, which can be repeated, with a help text."""
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help=text)


def environment_options(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options from --env-set by name; raises UsageError for a text that is not OPTION=VALUE."""
    from acme_ext import envs
    from acme_ext.launch.runs import settings

    given = settings.split(options.env_set)
    envs.check_names(given)
    return {name: settings.literal(value) for name, value in given.items()}


def say_stopped(steps: int, options: argparse.Namespace, run_dir: Any) -> str:
    """Returns how a stopped run is resumed, in words."""
    without = ", without --fresh," if options.fresh else ""
    return f"stopped at step {steps:,}; the same command{without} resumes it. {run_dir}"


def say_score(score: Any) -> str:
    """Returns an evaluation's score in words."""
    row = score.row()
    return (
        f"return {row['episode_return_mean']:.4g} (std {row['episode_return_std']:.3g}, "
        f"{row['episode_return_min']:.4g} to {row['episode_return_max']:.4g}) over {row['episodes']} episodes"
    )
