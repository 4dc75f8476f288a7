"""Functions that the benchmarks' commands share: exit codes, error messages, checks, and their own command lines."""

import argparse
import os
import pathlib
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Literal

from acme_ext.errors import RunError, UsageError
from acme_ext.utils import system


def run(name: str, command: Callable[[], int]) -> int:
    """Runs a command; returns its exit code, 2 for a usage error, or 1 for a failed run.

    It prints an error as one sentence.

    Args:
        name: name of the module, such as `benchmarks.learning`.
        command: runs the command, and returns its exit code.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported
    try:
        return command()
    except (UsageError, RunError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def add(
    parser: argparse.ArgumentParser,
    *flags: Literal["jobs", "fresh"],
    seeds: Sequence[int] | None = None,
    steps: str | None = None,
    runs: pathlib.Path | str | None = None,
    out: pathlib.Path | str | None = "benchmarks/results",
) -> None:
    """Adds options that several commands have.

    Args:
        parser: the command's parser.
        *flags: `jobs`, `fresh` or both.
        seeds: the default of `--seeds`; None for no such option.
        steps: the unit of `--steps`, another budget than the settings'; None for no such option.
        runs: the default of `--runs`, or a description of it as text; None for no such option.
        out: the default of `--out`, or a description of it as text; None for no such option.
    """
    if seeds is not None:
        usual = " ".join(map(str, seeds))
        parser.add_argument("--seeds", type=int, nargs="+", default=seeds, metavar="N", help=f"random seeds ({usual})")
    if steps is not None:
        parser.add_argument(
            "--steps", type=int, metavar="N", help=f"another budget of {steps}; results are written to --runs"
        )
    if "jobs" in flags:
        parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at the same time (%(default)s)")
    if "fresh" in flags:
        parser.add_argument("--fresh", action="store_true", help="start from the beginning: delete earlier runs")
    for name, usual, what in (("--runs", runs, "the runs"), ("--out", out, "the results")):
        if usual is not None:
            default = None if isinstance(usual, str) else usual
            parser.add_argument(
                name, type=pathlib.Path, default=default, metavar="DIR", help=f"folder for {what} ({usual})"
            )


_PLACES = ("runs", "out", "run_dir", "fresh", "jobs")  # options that don't change what is measured


def line(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """Returns the command line that measures the same: the parser's program, with the options that aren't defaults."""
    words = parser.prog.split()
    for action in parser._actions:
        value = getattr(options, action.dest, action.default)
        if action.dest in _PLACES or value == action.default or not action.option_strings:
            continue
        flag = action.option_strings[0]
        if action.nargs == 0:
            words.append(flag)
        elif isinstance(value, list | tuple) and action.nargs is None:  # an option that can be repeated
            words += [word for each in value for word in (flag, str(each))]
        else:
            words += [flag, *(map(str, value) if isinstance(value, list | tuple) else [str(value)])]
    return shlex.join(words)


def check_seeds(seeds: Sequence[int]) -> None:
    """Raises UsageError if a seed is listed twice."""
    if len(set(seeds)) < len(seeds):
        raise UsageError("--seeds lists a seed twice.")


def check_least(options: argparse.Namespace, *names: str, least: int = 1) -> None:
    """Raises UsageError if one of these options is less than `least`."""
    for name in names:
        if getattr(options, name) < least:
            said = name.replace("_", "-")
            raise UsageError(f"--{said} is {getattr(options, name)}: it must be at least {least}.")


def end_with(parent: int) -> None:
    """Makes the kernel kill this process when its parent process ends."""
    if not system.signal_at_parents_end(parent, signal.SIGKILL):
        os._exit(1)
