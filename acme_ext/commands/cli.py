"""The command line, `acme-ext`: its commands, and what is common to them. What is heavy a command imports when run."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence

import acme_ext
from acme_ext.commands import board_games, data, doctor, evaluate, export, listing, runs, train, tune
from acme_ext.errors import RunError, UsageError
from acme_ext.launch.processes import interrupt

_COMMANDS = (train, evaluate, export, board_games, data, runs, tune, listing, doctor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code.

    0: done; 1: it failed; 2: it was asked for something that can't be; 128 + n: signal n stopped it, after a last save.
    """
    options = parse(sys.argv[1:] if arguments is None else list(arguments))
    # TensorFlow is only Reverb's means of transport here: its notes on CPU features and CUDA would bury ours.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if arguments is None and (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)  # as `python -m` has it, so that modules of the user's are found
    try:
        with interrupt.at_once(f"acme-ext: stopped{options.if_stopped}."):
            return options.command(options)
    except (UsageError, RunError) as error:
        print(f"acme-ext: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns a command's options; those of `train` have what comes after `--` as its `flags`."""
    if arguments[:1] == ["train"] and "--" in arguments:
        end = arguments.index("--")
        options = _parser().parse_args(arguments[:end])
        options.flags = arguments[end + 1 :]
        return options
    return _parser().parse_args(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="acme-ext", description="Reinforcement-learning agents on Acme, Reverb, Launchpad and JAX."
    )
    parser.add_argument("--version", action="version", version=f"acme-ext {acme_ext.__version__}")
    parser.set_defaults(if_stopped="")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
