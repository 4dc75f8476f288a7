"""Placement of a program's nodes on a cluster: their resource requests, and the errors if these can't be met."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from acme_ext.errors import UsageError
from acme_ext.launch.roles import role_of

Resources = Mapping[str, float]

_PIN = 0.001  # amount of the resource that Ray defines for each host's address
_LEAST_S = 5.0  # minimum time for Ray to place the nodes
_SILENCE_S = 3.0  # of waiting, before a message says for what
_PATIENCE_S = 30.0  # for resources that others use
_HEADINGS = ("CPU", "GPU")


def bundles(
    groups: Sequence[str],
    asked: Sequence[Resources],
    here: str,
    shared: bool | None,
    there: Resources,
) -> tuple[list[dict[str, float]], str | None]:
    """Returns the bundle of each node, and a message for the user or None.

    Nodes that write to the run directory are pinned to this host, unless all hosts share the directory. If that is
    unknown, since no other host has joined yet, they are pinned if this host has enough resources. Otherwise each may
    be placed on any host.

    Args:
        groups: each node's group.
        asked: each node's requested resources.
        here: this host's address.
        shared: whether all hosts share the run directory; None if unknown.
        there: all resources of this host.
    """
    writers = list(dict.fromkeys(group for group in groups if role_of(group).writes))
    wanted = total(resources for group, resources in zip(groups, asked, strict=True) if group in writers)
    fits = all(there.get(kind, 0) >= amount for kind, amount in wanted.items())
    pinned = shared is False or (shared is None and fits)
    pin = {f"node:{here}": _PIN} if pinned else {}
    made = [{**asks, **(pin if group in writers else {})} for group, asks in zip(groups, asked, strict=True)]
    names = ", ".join(writers)
    if shared is False:
        return made, f"the run directory is not shared by all hosts: {names} run on this one."
    if pinned:
        return made, f"no other host has joined yet that could share the run directory: {names} run on this one."
    return made, None


def resources_of(host: str) -> dict[str, float]:
    """Returns all resources of the live host at an address."""
    return dict(_hosts()).get(host, {})


def actor_options(asked: Resources) -> dict[str, Any]:
    """Returns the resources of a proxy as options of a Ray actor."""
    others = {name: amount for name, amount in asked.items() if name not in _HEADINGS}
    return {"num_cpus": asked.get("CPU", 0), "num_gpus": asked.get("GPU", 0), "resources": others}


def total(bundles: Iterable[Resources]) -> dict[str, float]:
    """Returns the sum of several bundles, without the resources that pin them to a host."""
    summed: Counter[str] = Counter()
    for asked in bundles:
        summed.update({name: amount for name, amount in asked.items() if not name.startswith("node:")})
    return dict(summed)


def reserve(
    names: Sequence[str], bundles: Sequence[Resources], wait_s: float | None, say: Callable[[str], None]
) -> Any:
    """Returns a placement group with a bundle for each node; reserves all of them or none.

    Args:
        names: the names of the nodes.
        bundles: the bundle of each node.
        wait_s: longest wait for the resources. None: 30 s if others use them, and no wait if the cluster doesn't have
            them.
        say: shows a message about the wait.

    Raises:
        UsageError: there were not enough resources; the message says which are missing.
    """
    from ray.util.placement_group import placement_group, remove_placement_group

    lacking = missing(names, bundles, _hosts())
    if wait_s is None:
        wait_s = 0.0 if lacking else _PATIENCE_S
    if lacking and not wait_s:
        raise _refusal(lacking, bundles)
    group = placement_group([dict(asked) for asked in bundles], strategy="PACK")
    start, silent = time.monotonic(), True
    try:
        while not group.wait(1):
            waited = time.monotonic() - start
            if waited > max(wait_s, _LEAST_S):
                raise _refusal(missing(names, bundles, _hosts()), bundles)
            if waited > _SILENCE_S and silent:
                silent = False
                say(f"waiting for room on the cluster, for {wait_s:.0f} s at most: {_compare(bundles)}.")
    except BaseException:
        remove_placement_group(group)
        raise
    return group


def _refusal(lacking: Sequence[str], bundles: Sequence[Resources]) -> UsageError:
    why = "; ".join([*lacking, _compare(bundles)])
    return UsageError(f"the program does not fit on the cluster, and nothing was started: {why}.")


def _hosts() -> list[tuple[str, dict[str, float]]]:
    """Returns the address and all resources of each live host."""
    import ray

    return [(node["NodeManagerAddress"], node["Resources"]) for node in ray.nodes() if node["Alive"]]


def missing(names: Sequence[str], bundles: Sequence[Resources], hosts: Sequence[tuple[str, Resources]]) -> list[str]:
    """Returns what even an idle cluster doesn't have, a clause each; without any, the bundles may still not fit."""
    reasons = []
    for name, asked in zip(names, bundles, strict=True):
        if not any(all(there.get(kind, 0) >= amount for kind, amount in asked.items()) for _, there in hosts):
            pinned = next((kind.removeprefix("node:") for kind in asked if kind.startswith("node:")), None)
            where = "no host has" if pinned is None else f"{pinned}, where the run directory is, does not have"
            reasons.append(f"{name} asks for {describe_resources(total([asked]))}, which {where}")
    if reasons:
        return [*reasons[:3], *(["and others likewise"] if len(reasons) > 3 else [])]
    there = total(resources for _, resources in hosts)
    short = [kind for kind, amount in total(bundles).items() if there.get(kind, 0) < amount]
    return [f"there is too little {kind}" for kind in short]


def _compare(bundles: Sequence[Resources]) -> str:
    """Returns a text with the total of requested, existing and free resources."""
    import ray

    asked, there, free = total(bundles), ray.cluster_resources(), ray.available_resources()
    return (
        f"asked for are {describe_resources(asked)}; there are "
        f"{describe_resources({kind: there.get(kind, 0) for kind in asked})}, "
        f"and of these free {describe_resources({kind: free.get(kind, 0) for kind in asked})}"
    )


def describe_resources(amounts: Resources) -> str:
    """Returns amounts as text, such as `2 CPU, 1 GPU`."""
    return ", ".join(f"{math.floor(amount * 1000) / 1000:g} {kind}" for kind, amount in sorted(amounts.items()))
