"""Proxies, which variables of the environment name, and which stand between no two nodes of a program."""

import os
import string
from collections.abc import Mapping


def bypassed(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of an environment with which gRPC, inside Courier and Reverb, asks no proxy for this
    machine, nor for an address in numbers.
    """
    # It takes these as endings of a host's name.
    endings = [*string.digits, "localhost"]
    given = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    endings += [name for name in given.split(",") if name and name not in endings]
    return {**environment, "no_grpc_proxy": ",".join(endings)}


def bypass() -> None:
    """Does so for this process and those that it starts."""
    os.environ.update(bypassed(os.environ))
