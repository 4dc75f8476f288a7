"""The driver's connection to Ray: to a cluster that runs, or to a Ray that is started for this program alone."""

import json
import logging
import os
import pathlib
import socket
from collections.abc import Mapping
from typing import Any

from acme_ext.errors import UsageError

EXCLUDED = ("/runs/", ".git/", ".venv/", "venv/", "__pycache__/", "*.egg-info/", ".*_cache/", "node_modules/")
"""What of the working directory doesn't travel, beside what `.gitignore` names."""
_SETTINGS = {
    "RAY_worker_niceness": "0",  # 15 is for tasks beside a user's own work
    "RAY_memory_monitor_refresh_ms": "0",  # it would end agents, which hold nothing, for what nodes hold
    "RAY_USAGE_STATS_ENABLED": "0",
}
_KNOCK_S = 5.0
_STORE_BYTES = 80 * 2**20  # for objects in Ray, the least that it allows: data does not go by it


def address_of(given: str | None) -> str | None:
    """Returns the address of the cluster that is meant: the given one, or that of the variable `RAY_ADDRESS`, as Ray
    does; None for a Ray of the run's own, which `local` says too.
    """
    address = given or os.environ.get("RAY_ADDRESS")
    return None if address in ("", "local") else address


def start(
    folder: pathlib.Path, resources: Mapping[str, float], runtime_env: Mapping[str, Any], *, private: bool
) -> None:
    """Starts a Ray on this machine, as a part of this process's tree.

    Args:
        folder: for its files; a short path.
        resources: that it is to have beside this machine's GPUs, at least.
        runtime_env: what its processes are started with, in Ray's words.
        private: whether this process is in a network of its own, with a loopback and nothing else.
    """
    import ray

    os.environ.update(_SETTINGS)
    os.environ.pop("RAY_ADDRESS", None)  # of another, where `local` was asked for
    others = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")}
    options: dict[str, Any] = {"_node_ip_address": "127.0.0.1"} if private else {}
    ray.init(
        address="local",
        num_cpus=max(len(os.sched_getaffinity(0)), -int(-resources.get("CPU", 0) // 1)),
        resources=others,
        runtime_env=dict(runtime_env),
        object_store_memory=_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=str(folder),
        **options,
    )


def connect(
    address: str, code: pathlib.Path, run_directory: pathlib.Path, runtime_env: Mapping[str, Any] | None = None
) -> None:
    """Connects to a cluster, one of whose hosts this is; the code of a folder travels to the others.

    Args:
        address: of the cluster, or `auto`.
        code: the folder. It stays where the runtime environment, or the one of the job that this is, names a
            `working_dir`: then that travels.
        run_directory: what does not travel.
        runtime_env: what the processes on all hosts are started with, in Ray's words.

    Raises:
        UsageError: there is no such cluster, or this can't be a part of it; the message says why.
    """
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "2")  # of 36 s; Ray would make 20
    import ray

    if "://" in address:
        raise UsageError(f"the program must be started on a host of the cluster, not by way of {address!r}.")
    if address != "auto":
        _knock(address)
    excluded: list[str] = list(EXCLUDED)
    if run_directory.is_relative_to(code):
        excluded.append(f"/{run_directory.relative_to(code)}/")
    usual = {} if "working_dir" in job_environment() else {"working_dir": str(code), "excludes": excluded}
    try:
        ray.init(
            address=address,
            runtime_env={**usual, **(runtime_env or {})},
            namespace="acme-ext",
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except ConnectionError as error:
        raise _nobody(address, error) from error
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"the cluster at {address!r} can't be joined from here: {_first_line(error)}") from error


def job_environment() -> dict[str, Any]:
    """Returns the runtime environment of the job of Ray's that this process is the command of (`ray job submit`), which
    Ray adds to what a program asks for itself; empty where it is none.
    """
    return json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")).get("runtime_env") or {}


def _knock(address: str) -> None:
    """Raises UsageError if nobody listens at an address, for which Ray would try for a minute."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()
    except (OSError, ValueError) as error:
        raise _nobody(address, error) from error


def _nobody(address: str, error: Exception) -> UsageError:
    return UsageError(
        f"no Ray cluster answers at {address!r} ({_first_line(error)}): start one with `ray start --head`, or give no "
        "address for a Ray of the run's own."
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")
