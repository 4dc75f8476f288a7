"""Makes the ports of a program unreachable for others.

Courier, where Launchpad is installed, and Reverb listen on every interface without authentication, and Courier
unpickles its input, so anybody who can reach a port can run code. In its own network namespace, a program has a
loopback that nothing outside can reach.
"""

import ctypes
import fcntl
import os
import socket
import struct

from acme_ext.errors import RunError
from acme_ext.utils import system

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def enter() -> str | None:
    """Moves this process and its future children into a network namespace that has only a loopback.

    The process must have one thread. Returns None, or the reason why it is not possible (a kernel or a container may
    forbid it); then nothing has changed.

    Raises:
        RunError: the namespace exists, but its setup failed: this process has no network at all.
    """
    if not system.is_linux():
        return "only Linux has network namespaces"
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    # First try without a user namespace, which would take away rights over other users' files. Root may do so, except
    # in most containers.
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


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | _IFF_UP, b""))
