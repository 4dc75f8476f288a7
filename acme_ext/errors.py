"""Errors whose message is shown to the user without a traceback: it says what is wrong and what would be right."""

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """The user asked for something that can't be done; nothing was written.

    The command line prints the message and exits with code 2.
    """


class RunError(RuntimeError):
    """A run had to stop; its progress is saved.

    The command line prints the message and exits with code 1.
    """


class NotFiniteError(RunError):
    """A loss, its gradient or a TD error was not finite, so the parameters must not be saved."""


def exited(error: SystemExit) -> RunError:
    """Returns the error for code that called `sys.exit`, which would end the process as if all had succeeded."""
    return RunError(f"the environment, or another part of the run, called sys.exit({error.code}).")


def nearest(name: str, valid: Iterable[str]) -> str:
    """Returns a hint with the valid names nearest to a wrong one, such as `did you mean 'dqn'?`."""
    valid = sorted(valid)
    if not valid:
        return "there is none."
    lower = {each.lower(): each for each in valid}
    if close := difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5):
        return "did you mean " + " or ".join(repr(lower[each]) for each in close) + "?"
    shown = ", ".join(valid[:12]) + (", ..." if len(valid) > 12 else "")
    return f"valid: {shown}."
