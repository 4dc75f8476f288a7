"""Makes a program's nodes ignore the proxies that environment variables name."""

import os
import string
from collections.abc import Mapping


def bypassed(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns environment variables with which gRPC, inside Courier and Reverb, uses no proxy for this machine and for
    numeric addresses.
    """
    # gRPC compares these with the endings of host names.
    endings = [*string.digits, "localhost"]
    given = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    endings += [name for name in given.split(",") if name and name not in endings]
    return {**environment, "no_grpc_proxy": ",".join(endings)}


def bypass() -> None:
    """Sets the variables of `bypassed` in this process and the processes that it starts."""
    os.environ.update(bypassed(os.environ))
