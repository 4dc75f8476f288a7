"""The command line, `acme-ext`: parses the arguments and runs a command, which then imports the modules it needs."""

import argparse
import os
import re
import select
import signal
import sys
from collections.abc import Sequence

import acme_ext
from acme_ext.commands import board_games, data, doctor, evaluate, export, listing, runs, train, tune
from acme_ext.errors import RunError, UsageError, exited, nearest
from acme_ext.launch.hosts import interrupt

_COMMANDS = (train, evaluate, export, board_games, data, runs, tune, listing, doctor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code.

    0: success; 1: the command failed; 2: the request was invalid; 128 + n: signal n stopped it, after a last save.
    """
    options = parse(sys.argv[1:] if arguments is None else list(arguments))
    # TensorFlow is used only by Reverb here; its messages about CPU features and CUDA would hide ours.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if arguments is None and (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does, so that the user's modules can be imported
    try:
        with interrupt.at_once(f"acme-ext: stopped{options.if_stopped}."):
            try:
                code = options.command(options)
            except SystemExit as error:
                raise exited(error) from error
            sys.stdout.flush()
            return code
    except (UsageError, RunError) as error:
        print(f"acme-ext: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        if not _has_no_reader():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would complain again when it ends
        return 128 + signal.SIGPIPE


def _has_no_reader() -> bool:
    """Whether what reads the standard output, such as a pager or `head`, has ended."""
    output = select.poll()
    try:
        output.register(sys.stdout.fileno(), 0)
    except OSError:  # it is no file
        return False
    return any(event & select.POLLERR for _, event in output.poll(0))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns a command's options; for `train`, the arguments after `--` become the option `flags`."""
    if arguments[:1] == ["train"] and "--" in arguments:
        end = arguments.index("--")
        options = _parser().parse_args(arguments[:end])
        options.flags = arguments[end + 1 :]
        return options
    return _parser().parse_args(arguments)


class _Parser(argparse.ArgumentParser):
    """A parser, also of each command. Its error for unknown arguments says what may be meant."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")  # without the usage, which is long

    def parse_known_args(self, args=None, namespace=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = re.findall(r"--[a-z-]+", self.format_usage())
            option = next((each.partition("=")[0] for each in unknown if each.startswith("--")), None)
            setting = [each for each in ("--set", "--env-set") if each in known]
            hint = ""
            if option:
                hint = f"; {nearest(option, known)}"
            elif setting and all("=" in each for each in unknown):
                hint = f"; write {' or '.join(setting)} before each setting"
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options, unknown


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="acme-ext", description="Reinforcement-learning agents on Acme, Reverb, Launchpad and JAX.")
    parser.add_argument("--version", action="version", version=f"acme-ext {acme_ext.__version__}")
    parser.set_defaults(if_stopped="")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
