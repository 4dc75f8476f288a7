"""Connects the driver to Ray: to a running cluster, or to a Ray that it starts only for this program."""

import json
import logging
import os
import pathlib
import socket
from collections.abc import Mapping
from typing import Any

from acme_ext.errors import UsageError
from acme_ext.utils import system

EXCLUDED = ("/runs/", ".git/", ".venv/", "venv/", "__pycache__/", "*.egg-info/", ".*_cache/", "node_modules/")
"""Parts of the working directory that are not copied to other hosts, besides those in `.gitignore`."""
_SETTINGS = {
    "RAY_worker_niceness": "0",  # Ray's 15 is meant for tasks that run besides a user's own work
    "RAY_memory_monitor_refresh_ms": "0",  # it would kill proxies, which use little memory, for the memory of nodes
    "RAY_USAGE_STATS_ENABLED": "0",
}
_KNOCK_S = 5.0
_STORE_BYTES = 80 * 2**20  # size of Ray's object store, the least possible: data does not use it


def address_of(given: str | None) -> str | None:
    """Returns the address of the cluster to use: the given one, or, as in Ray, the variable `RAY_ADDRESS`.

    The result is None if this is `local`, empty or missing: Ray is then started only for the run.
    """
    address = given or os.environ.get("RAY_ADDRESS")
    return None if address in ("", "local") else address


def start(
    folder: pathlib.Path, resources: Mapping[str, float], runtime_env: Mapping[str, Any], *, private: bool
) -> None:
    """Starts Ray on this machine, in processes below this one.

    Args:
        folder: the folder for Ray's files; a short path.
        resources: minimum resources, besides this machine's GPUs.
        runtime_env: Ray's `runtime_env` of its processes.
        private: whether this process is in its own network namespace, which has only a loopback.
    """
    import ray

    os.environ.update(_SETTINGS)
    os.environ.pop("RAY_ADDRESS", None)  # it may name a cluster, although the user chose `local`
    others = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")}
    options: dict[str, Any] = {"_node_ip_address": "127.0.0.1"} if private else {}
    ray.init(
        address="local",
        num_cpus=max(system.available_cores(), -int(-resources.get("CPU", 0) // 1)),
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
    """Connects to a cluster that includes this host; Ray copies the code in a folder to the other hosts.

    Args:
        address: the address of the cluster, or `auto`.
        code: the folder. It is not copied if `runtime_env`, or the one of the current Ray job, has a `working_dir`:
            Ray then copies that.
        run_directory: the run directory, which is not copied.
        runtime_env: Ray's `runtime_env` of the processes on all hosts.

    Raises:
        UsageError: there is no such cluster, or this host can't join it; the message says why.
    """
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "2")  # 36 s each; Ray's default is 20
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
    """Returns the runtime environment of the current Ray job (`ray job submit`); empty if there is no job.

    Ray merges it with the runtime environment that the program sets.
    """
    return json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")).get("runtime_env") or {}


def _knock(address: str) -> None:
    """Raises UsageError if nothing listens at an address; Ray itself would retry for a minute."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()
    except (OSError, ValueError) as error:
        raise _nobody(address, error) from error


def _nobody(address: str, error: Exception) -> UsageError:
    return UsageError(
        f"no Ray cluster answers at {address!r} ({_first_line(error)}): start one with `ray start --head`, or leave "
        "out the address to start a Ray just for this run."
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")
