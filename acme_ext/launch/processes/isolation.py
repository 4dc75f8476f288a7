"""A program's ports out of everybody else's reach.

Courier and Reverb listen on every interface without authentication, and Courier unpickles what it is sent: whoever
reaches a port can run code. A network namespace of its own gives a program a loopback that
nothing outside it can reach.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

from acme_ext.errors import RunError

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def enter() -> str | None:
    """Moves this process, and all that it starts from now on, into a network namespace with a loopback and nothing
    else.

    It must have one thread. Returns None, or why it can't be done here (a kernel or a container may forbid it); then
    nothing has changed.

    Raises:
        RunError: it was done, and the loopback can't be raised: this process has no network at all.
    """
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    # Who may (root, outside most containers) does without a user namespace, which would take rights over other users'
    # files.
    own_user = libc.unshare(_CLONE_NEWNET) != 0
    if own_user and libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return os.strerror(ctypes.get_errno())
    try:
        if own_user:
            for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        _raise_loopback()
    except OSError as error:
        raise RunError(
            f"the program's own network namespace can't be set up ({error}): give --open-ports to do without, in "
            "Python private=False."
        ) from error
    return None


def say(why: str | None) -> None:
    """Tells the user why the program has no network of its own, where it hasn't."""
    if why is not None:
        print(f"acme-ext: the program's ports are open to the network ({why}).", file=sys.stderr)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | _IFF_UP, b""))
