"""Functions that several commands use."""

import argparse
import contextlib
import math
from typing import Any


def count(text: str) -> int:
    """Parses an option's text, such as `5000` or `5e3`, as a whole number above 0.

    Raises ArgumentTypeError if it is none.
    """
    with contextlib.suppress(ValueError):
        value = int(text) if text.isdecimal() else float(text)
        if 1 <= value < math.inf and value == int(value):
            return int(value)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")


def counted(number: int, what: str) -> str:
    """Returns a number and a noun, in the plural unless the number is 1: `1 episode`, `20 episodes`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


ACTING = "replace a setting of the run that changes how the agent acts, such as noise_stddev=0.5"
"""The help of `--set` in commands that use a trained agent."""


def add_count(parser: argparse.ArgumentParser, name: str, text: str, *, default: int | None = None) -> None:
    """Adds an option that takes a whole number above 0, with a help text."""
    parser.add_argument(name, type=count, default=default, metavar="N", help=text)


def add_set(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds the option `--set FIELD=VALUE`, which can be repeated, with a help text."""
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help=text)


def add_env_set(parser: argparse.ArgumentParser, text: str = "an option of the environment") -> None:
    """Adds the option `--env-set OPTION=VALUE`, which can be repeated, with a help text."""
    parser.add_argument("--env-set", action="append", default=[], metavar="OPTION=VALUE", help=text)


def environment_options(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options from --env-set by name; raises UsageError for a text that is not OPTION=VALUE."""
    from acme_ext import envs
    from acme_ext.config.assignments import split_assignments
    from acme_ext.config.types import parse_literal

    given = split_assignments(options.env_set)
    envs.check_names(given)
    return {name: parse_literal(value) for name, value in given.items()}


def say_stopped(steps: int, options: argparse.Namespace, run_dir: Any) -> str:
    """Returns how a stopped run is resumed, in words."""
    without = ", without --fresh," if options.fresh else ""
    return f"stopped at step {steps:,}; the same command{without} resumes it. {run_dir}"


def say_score(score: Any) -> str:
    """Returns an evaluation's score in words."""
    row = score.row()
    mean, std, low, high = (row[f"episode_return_{name}"] for name in ("mean", "std", "min", "max"))
    return f"return {mean:.4g} (std {std:.3g}, {low:.4g} to {high:.4g}) over {counted(row['episodes'], 'episode')}"
