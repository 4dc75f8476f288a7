"""Errors whose message alone is meant for the user: one sentence, what is wrong and what would be right."""

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """The user asked for something that can't be done; nothing was written. The command line prints it and exits with
    2.
    """


class RunError(RuntimeError):
    """A run had to stop; what it had learned is saved. The command line prints it and exits with 1."""


class NotFiniteError(RunError):
    """A loss or its gradient was not finite: what was learned is not to be saved."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Returns a half-sentence that names the valid names nearest to a wrong one: `did you mean 'dqn'?`."""
    valid = sorted(valid)
    if not valid:
        return "there is none."
    lower = {each.lower(): each for each in valid}
    if close := difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5):
        return "did you mean " + " or ".join(repr(lower[each]) for each in close) + "?"
    shown = ", ".join(valid[:12]) + (", ..." if len(valid) > 12 else "")
    return f"valid: {shown}."
