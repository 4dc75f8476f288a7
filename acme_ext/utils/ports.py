"""Ports that are reserved for servers which start later, possibly in other processes."""

import socket


def reserve() -> socket.socket:
    """Returns a socket that keeps a port from every other program on this host until it is closed.

    It is bound, but never listens. A server that sets the same option, as gRPC and `utils.calls` do, can still listen
    on the port, and do so again after a restart.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("", 0))
    return reserved
