"""Launchpad's own command-line flags, for programs that this package runs instead of `lp.launch`.

Flags that are meaningful for such a program are applied. All others are refused, because ignoring them silently would
mislead the user. The message names the equivalent option, if there is one.
"""

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

from acme_ext.errors import UsageError, nearest

_LAUNCHERS = {"local_mp": "processes", "local_mt": "threads"}
_WINDOWS = "nodes have no windows here: follow what each of them prints in logs/nodes/ of the run directory"
_INTERNAL = "it is between Launchpad and the processes that it starts: leave it out"
_REFUSED = {
    "lp_worker_manager_registers_signals": "Ctrl-C and SIGTERM are taken here by who keeps the nodes, which ends them "
    "after a last save: leave it out",
    "tmux_open_window": _WINDOWS,
    "tmux_session_name": _WINDOWS,
    "lp_task_id": _INTERNAL,
    "data_file": _INTERNAL,
    "init_file": _INTERNAL,
    "flags_to_populate": _INTERNAL,
}


class Given(NamedTuple):
    """The flags' values as arguments of `run_program`; None where a flag is not given."""

    on: str | None
    grace_s: float | None


def take(arguments: Sequence[str]) -> Given:
    """Parses Launchpad's flags of a command line.

    Raises:
        UsageError: a flag is not one of Launchpad's, has no effect here, or has an invalid value; or Launchpad is not
            installed.
    """
    from absl import flags

    from acme_ext.launch.hosts import launchpad

    if not launchpad.INSTALLED:
        raise UsageError(
            f"{arguments[0]} is a flag of Launchpad, which is not installed here: leave it out. --on says where nodes "
            "run; in Python, grace_s of launch.Processes says how long they get to end by themselves."
        )
    theirs = flags.FLAGS.flags_by_module_dict()["launchpad.flags"]
    values = flags.FlagValues()
    for flag in theirs:
        values[flag.name] = copy.deepcopy(flag)
    applied = ("lp_launch_type", "lp_termination_notice_secs")
    try:
        _, *rest = values(["acme-ext", *arguments])
    except flags.UnrecognizedFlagError as error:
        if error.flagname in _REFUSED:
            raise _refusal(error.flagname, _REFUSED[error.flagname]) from None
        raise UsageError(f"Launchpad has no flag --{error.flagname}: {nearest(error.flagname, applied)}") from None
    except flags.Error as error:
        raise UsageError(f"of Launchpad's flags: {str(error).rstrip('.')}.") from None
    if rest:
        raise UsageError(
            f"{rest[0]!r} is not a flag; a flag of Launchpad is for example --lp_termination_notice_secs=60."
        )
    for name in (flag.name for flag in theirs if values[flag.name].present):
        if name not in applied:
            raise _refusal(name, _REFUSED.get(name, _INTERNAL))
    on = notice = None
    if values["lp_launch_type"].present:
        launcher = values["lp_launch_type"].value
        if launcher not in _LAUNCHERS:
            raise _refusal(
                f"lp_launch_type={launcher}",
                "local_mp (--on processes) and local_mt (--on threads) do, and on several machines --on ray",
            )
        on = _LAUNCHERS[launcher]
    if values["lp_termination_notice_secs"].present:
        notice = values["lp_termination_notice_secs"].value
    return Given(on, math.inf if notice is not None and notice < 0 else notice)


def _refusal(flag: str, instead: str) -> UsageError:
    return UsageError(f"--{flag} has no effect on a program of acme-ext: {instead}.")
