"""Assigns CPU threads and GPUs to the nodes of a program whose processes run on one machine."""

import functools
import glob
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from launchpad import context

from acme_ext.errors import UsageError
from acme_ext.launch.processes.director import name_of, names_of
from acme_ext.launch.processes.forks import GRACE_S, Options, give_devices
from acme_ext.launch.runners.nodes import stops

if TYPE_CHECKING:
    from acme_ext.launch.runners.program import Topology


def options(topology: "Topology", directory: pathlib.Path, restarts: int = 0, grace_s: float | None = None) -> Options:
    """Returns the options with which a program's nodes run as processes of this machine.

    Args:
        topology: the program's topology.
        directory: the run directory.
        restarts, grace_s: see `Options`.

    Raises:
        UsageError: the nodes ask for resources that this machine doesn't have.
    """
    given = devices_of(topology, _visible())
    accelerated = topology.accelerated_here
    if given:
        accelerated = tuple(group for group in accelerated if "GPU" in topology.resources.get(group, {}))
    # Threads of actors and evaluators; the learner uses the CPUs that they leave idle.
    share = max(1, len(os.sched_getaffinity(0)) // (topology.actors + topology.evaluators))
    threads = {"actor": share, "evaluator": share}
    threads |= {group: max(1, int(asked["CPU"])) for group, asked in topology.resources.items() if "CPU" in asked}
    grace_s = GRACE_S if grace_s is None else grace_s
    return Options(directory.absolute() / "logs" / "nodes", restarts, accelerated, threads, given, grace_s)


def devices_of(topology: "Topology", there: Sequence[str]) -> dict[str, str]:
    """Returns the GPUs of each node that asks for some, as values of `CUDA_VISIBLE_DEVICES`.

    A node that asks for whole GPUs gets its own. Nodes that ask for a fraction share a GPU.

    Raises:
        UsageError: there are fewer GPUs than the nodes ask for, or they ask for another kind of resource.
    """
    for group, asked in topology.resources.items():
        if others := [name for name in asked if name not in ("CPU", "GPU")]:
            raise UsageError(
                f"{group} asks for {others[0]}: only CPU and GPU can be asked for on one machine; others need Ray."
            )
    given: dict[str, str] = {}
    left, shared = list(there), dict[str, float]()  # device -> its free share
    try:
        for group, name in names_of(topology.groups):
            amount = topology.resources.get(group, {}).get("GPU", 0)
            if amount >= 1:
                given[name] = ",".join([left.pop(0) for _ in range(int(amount))])
            elif amount:
                fitting = [device for device, free in shared.items() if free + 1e-9 >= amount]
                device = fitting[0] if fitting else left.pop(0)
                shared[device] = shared.get(device, 1.0) - amount
                given[name] = device
    except IndexError:
        raise UsageError(f"the nodes ask for more GPUs than there are here: {len(there)}.") from None
    return given


def on(topology: "Topology", directory: pathlib.Path, group: str, index: int, make_worker: Callable) -> Callable:
    """Returns a function that makes a node's worker in the node.

    If one of Launchpad's own launchers runs the node as a process, the function first assigns the node its devices.
    """
    return functools.partial(_on, topology, directory, group, index, make_worker)


def _on(
    topology: "Topology",
    directory: pathlib.Path,
    group: str,
    index: int,
    make_worker: Callable,
    *arguments: Any,
    **named: Any,
) -> Any:
    processes = (context.LaunchType.LOCAL_MULTI_PROCESSING, context.LaunchType.TEST_MULTI_PROCESSING)
    if stops.told_at_once() and context.get_context().launch_type in processes:
        give_devices(group, name_of(group, index, topology.groups[group]), options(topology, directory))
    return make_worker(*arguments, **named)


def _visible() -> list[str]:
    """Returns the GPUs that this process can see, without initializing any."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [device.strip() for device in visible.split(",") if device.strip()]
    return [str(index) for index in range(len(glob.glob("/dev/nvidia[0-9]*")))]
