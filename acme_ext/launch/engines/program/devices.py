"""Assigns CPU threads and GPUs to the nodes of a program whose processes run on one machine."""

import glob
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from acme_ext.errors import UsageError
from acme_ext.launch.engines.program.nodes import stops
from acme_ext.launch.hosts import launchpad as lp
from acme_ext.launch.hosts.node_process import GRACE_S, Options, give_devices
from acme_ext.launch.placement import ProcessProgram, Program
from acme_ext.launch.roles import NodeId, nodes_of, role_of
from acme_ext.utils import system


def options(on: ProcessProgram, directory: pathlib.Path) -> Options:
    """Returns the options with which a program's nodes run as processes of this machine.

    Args:
        on: the program.
        directory: the run directory.

    Raises:
        UsageError: the nodes ask for resources that this machine doesn't have.
    """
    given = devices_of(on, _visible())
    accelerated = on.accelerated_here
    if given:
        accelerated = tuple(group for group in accelerated if "GPU" in on.resources.get(group, {}))
    # The learner uses the CPUs that the limited groups leave idle.
    limited = {group: count for group, count in on.groups.items() if role_of(group).limited}
    threads = dict.fromkeys(limited, max(1, system.available_cores() // sum(limited.values())))
    threads |= {group: max(1, int(asked["CPU"])) for group, asked in on.resources.items() if "CPU" in asked}
    grace_s = GRACE_S if on.grace_s is None else on.grace_s
    return Options(directory.absolute() / "logs" / "nodes", on.restarts, accelerated, threads, given, grace_s)


def devices_of(on: ProcessProgram, there: Sequence[str]) -> dict[str, str]:
    """Returns the GPUs of each node that asks for some, as values of `CUDA_VISIBLE_DEVICES`.

    A node that asks for whole GPUs gets its own. Nodes that ask for a fraction share a GPU.

    Raises:
        UsageError: there are fewer GPUs than the nodes ask for, or they ask for another kind of resource.
    """
    for group, asked in on.resources.items():
        if others := [name for name in asked if name not in ("CPU", "GPU")]:
            raise UsageError(
                f"{group} asks for {others[0]}: only CPU and GPU can be asked for on one machine; others need Ray."
            )
    given: dict[str, str] = {}
    left, shared = list(there), dict[str, float]()  # device -> its free share
    try:
        for node in nodes_of(on.groups):
            amount = on.resources.get(node.role, {}).get("GPU", 0)
            if amount >= 1:
                given[node.name] = ",".join([left.pop(0) for _ in range(int(amount))])
            elif amount:
                fitting = [device for device, free in shared.items() if free + 1e-9 >= amount]
                device = fitting[0] if fitting else left.pop(0)
                shared[device] = shared.get(device, 1.0) - amount
                given[node.name] = device
    except IndexError:
        raise UsageError(f"the nodes ask for more GPUs than there are here: {len(there)}.") from None
    return given


def with_devices(on: Program, directory: pathlib.Path, group: str, index: int, make_worker: Callable) -> Callable:
    """Returns a function that makes a node's worker in the node.

    If one of Launchpad's own launchers runs the node as a process, the function first assigns the node its devices.
    """
    if not isinstance(on, ProcessProgram):  # threads have the devices of their process
        return make_worker
    processes = (lp.LaunchType.LOCAL_MULTI_PROCESSING, lp.LaunchType.TEST_MULTI_PROCESSING)

    def make(*arguments: Any, **named: Any) -> Any:
        if stops.stopped_together() and lp.get_context().launch_type in processes:
            give_devices(NodeId.of(group, index, on.groups[group]), options(on, directory))
        return make_worker(*arguments, **named)

    return make


def _visible() -> list[str]:
    """Returns the GPUs that this process can see, without initializing any."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [device.strip() for device in visible.split(",") if device.strip()]
    return [str(index) for index in range(len(glob.glob("/dev/nvidia[0-9]*")))]
