"""Hides from the package what only Linux offers, as if this were macOS; a module for `python -c` and sitecustomize."""

import os
import pathlib
import select
import signal
import sys
import types

CODE_FOLDER = pathlib.Path(__file__).parent


def hide_names() -> None:
    """Removes the functions and signals that macOS lacks; before the package is imported."""
    for module, names in (
        (os, ("sched_getaffinity", "sched_yield", "waitid", "memfd_create", "unshare", "eventfd", "pidfd_open")),
        (signal, ("SIGRTMIN", "SIGRTMAX")),
        (select, ("epoll",)),
    ):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    import fcntl

    for name in ("F_SETPIPE_SZ", "F_GETPIPE_SZ"):
        if hasattr(fcntl, name):
            delattr(fcntl, name)


def hide_system() -> None:
    """Makes the package's own view of the system macOS's: neither `/proc` nor Linux's system calls."""
    from acme_ext.utils import system

    nowhere = pathlib.Path("/nonexistent")
    system._PROC = system._CGROUPS = system._SHARED_MEMORY = nowhere
    system.sys = types.SimpleNamespace(platform="darwin")


def become_darwin() -> None:
    """Lets all code see macOS's name too. Libraries that are imported later would look for macOS's own."""
    sys.platform = "darwin"
