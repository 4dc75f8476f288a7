"""Where the nodes of a program go: what each asks of a cluster, and what is said when it can't be given."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from acme_ext.errors import UsageError

Resources = Mapping[str, float]

_PIN = 0.001  # of the resource that Ray gives each host by its address
_LEAST_S = 5.0  # that Ray is given to find the places
_SILENCE_S = 3.0  # of waiting, after which it is said what for
_PATIENCE_S = 30.0  # for resources that others hold
_HEADINGS = ("CPU", "GPU")


def bundle(asked: Resources, ip: str | None) -> dict[str, float]:
    """Returns what a node asks of a host, in Ray's words; with an address, of that host."""
    return {**asked, **({f"node:{ip}": _PIN} if ip is not None else {})}


def bundles(
    groups: Sequence[str],
    asked: Sequence[Resources],
    writers: Sequence[str],
    here: str,
    shared: bool | None,
    there: Resources,
) -> tuple[list[dict[str, float]], str | None]:
    """Returns what each node asks of a host, and what the user is to be told of it, if anything.

    Those that write to the run directory are asked for on this host, unless all hosts share it. Where that can't be
    known, since no other host has joined yet, they are as long as there is room; otherwise each is tried where it comes
    to.

    Args:
        groups: of each node.
        asked: what each asks for.
        writers: the groups that write to the run directory.
        here: this host's address.
        shared: whether all hosts share the run directory, if that is known.
        there: all the resources of this host.
    """
    wanted = total(resources for group, resources in zip(groups, asked, strict=True) if group in writers)
    fits = all(there.get(kind, 0) >= amount for kind, amount in wanted.items())
    pinned = shared is False or (shared is None and fits)
    made = [
        bundle(resources, here if pinned and group in writers else None)
        for group, resources in zip(groups, asked, strict=True)
    ]
    names = ", ".join(writers)
    if shared is False:
        return made, f"the run directory is not shared by all hosts: {names} run on this one."
    if pinned:
        return made, f"no other host has joined yet that could share the run directory: {names} run on this one."
    return made, None


def resources_of(host: str) -> dict[str, float]:
    """Returns all the resources of the living host at an address."""
    return dict(_hosts()).get(host, {})


def actor_options(asked: Resources) -> dict[str, Any]:
    """Returns the resources of an agent as Ray's actors take them."""
    others = {name: amount for name, amount in asked.items() if name not in _HEADINGS}
    return {"num_cpus": asked.get("CPU", 0), "num_gpus": asked.get("GPU", 0), "resources": others}


def total(bundles: Iterable[Resources]) -> dict[str, float]:
    """Returns the sum of several bundles, without what only pins them to a host."""
    summed: Counter[str] = Counter()
    for asked in bundles:
        summed.update({name: amount for name, amount in asked.items() if not name.startswith("node:")})
    return dict(summed)


def reserve(
    names: Sequence[str], bundles: Sequence[Resources], wait_s: float | None, say_to_user: Callable[[str], None]
) -> Any:
    """Returns a placement group with a bundle for each node: all of them, or none.

    Args:
        names: of the nodes.
        bundles: what each asks.
        wait_s: how long the cluster has to make room. None: 30 s if others hold what is missing, and no time if the
            cluster doesn't have it.
        say_to_user: told what is waited for.

    Raises:
        UsageError: there was no room; the message says what is missing.
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
                say_to_user(f"waiting for room on the cluster, for {wait_s:.0f} s at most: {_compare(bundles)}.")
    except BaseException:
        remove_placement_group(group)
        raise
    return group


def _refusal(lacking: Sequence[str], bundles: Sequence[Resources]) -> UsageError:
    why = "; ".join([*lacking, _compare(bundles)])
    return UsageError(f"the program does not fit on the cluster, and nothing was started: {why}.")


def _hosts() -> list[tuple[str, dict[str, float]]]:
    """Returns the address and all the resources of each living host."""
    import ray

    return [(node["NodeManagerAddress"], node["Resources"]) for node in ray.nodes() if node["Alive"]]


def missing(names: Sequence[str], bundles: Sequence[Resources], hosts: Sequence[tuple[str, Resources]]) -> list[str]:
    """Returns what can't be had however empty the cluster is, a clause for each; none does not say that all fits."""
    reasons = []
    for name, asked in zip(names, bundles, strict=True):
        if not any(all(there.get(kind, 0) >= amount for kind, amount in asked.items()) for _, there in hosts):
            pinned = next((kind.removeprefix("node:") for kind in asked if kind.startswith("node:")), None)
            where = "no host has" if pinned is None else f"{pinned}, where the run directory is, does not have"
            reasons.append(f"{name} asks for {say(total([asked]))}, which {where}")
    if reasons:
        return [*reasons[:3], *(["and others likewise"] if len(reasons) > 3 else [])]
    there = total(resources for _, resources in hosts)
    short = [kind for kind, amount in total(bundles).items() if there.get(kind, 0) < amount]
    return [f"there is too little {kind}" for kind in short]


def _compare(bundles: Sequence[Resources]) -> str:
    """Returns what is asked for in all, what the cluster has of it, and what of that is free."""
    import ray

    asked, there, free = total(bundles), ray.cluster_resources(), ray.available_resources()
    return (
        f"asked for are {say(asked)}; there are {say({kind: there.get(kind, 0) for kind in asked})}, "
        f"and of these free {say({kind: free.get(kind, 0) for kind in asked})}"
    )


def say(amounts: Resources) -> str:
    """Returns amounts in words, as `2 CPU, 1 GPU`."""
    return ", ".join(f"{math.floor(amount * 1000) / 1000:g} {kind}" for kind, amount in sorted(amounts.items()))
