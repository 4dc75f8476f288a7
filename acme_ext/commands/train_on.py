"""The parts of `acme-ext train` for programs and compiled runs."""

import argparse
import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from acme_ext.commands import common
from acme_ext.errors import UsageError

_NAMES = {
    "restarts": "restart",
    "private": "open-ports",
    "address": "ray-address",
    "wait_s": "ray-wait",
    "runtime_env": "runtime-env-json",
}
"""The options that set fields of placements with other names."""


_OF_RAY = ("address", "wait_s", "runtime_env")


def add_options(train: argparse.ArgumentParser) -> None:
    """Adds the options of programs and compiled runs."""
    common.add_count(train, "--actors", "run as a program with N actors")
    train.add_argument(
        "--on",
        choices=("processes", "threads", "ray", "compiled"),
        help="run as a program, with its nodes in processes, in threads or on a Ray cluster (processes); implies "
        "--actors 1, or no actors for recorded data. Or compiled: run environments written in JAX, acting, replay and "
        "learning as one compiled program",
    )
    common.add_count(train, "--seeds", "for a compiled run: run N seeds at once, starting from --seed")
    train.add_argument(
        "--ray-address",
        dest="address",
        metavar="ADDRESS",
        help="the address of a Ray cluster that this machine belongs to, or auto; local starts Ray for this run (the "
        "variable RAY_ADDRESS, or local)",
    )
    train.add_argument(
        "--ray-wait",
        dest="wait_s",
        type=float,
        metavar="S",
        help="seconds to wait for the cluster to have room for all nodes",
    )
    train.add_argument(
        "--runtime-env-json",
        dest="runtime_env",
        type=_object,
        metavar="JSON",
        help="Ray's runtime environment for the program's processes on every host, as for `ray job submit`",
    )
    train.add_argument(
        "--resources",
        action="append",
        metavar="NODES=NAME:N[,...]",
        help="the resources of each node of a kind in a program, such as learner=GPU:1,CPU:4; on Ray, also custom ones",
    )
    common.add_count(train, "--replay-shards", "replay servers of a program (1)")
    common.add_count(train, "--evaluators", "evaluators of a program (1)")
    train.add_argument(
        "--accelerated",
        type=_names,
        metavar="NODES",
        help="the nodes of a program that can use GPUs: learner, inference, evaluator, actor (learner,inference)",
    )
    train.add_argument(
        "--inference",
        choices=("actor", "server"),
        help="where a program applies the policy: in each actor, or in inference servers (actor)",
    )
    common.add_count(
        train,
        "--inference-servers",
        "with --inference server: the number of servers, among which the actors are divided (1)",
    )
    train.add_argument(
        "--experience",
        choices=("actor", "server"),
        help="which node writes the experience in a program with an inference server (actor)",
    )
    train.add_argument(
        "--restart",
        dest="restarts",
        type=int,
        metavar="N",
        help="how often per hour nodes that die, or the whole program, are restarted (0)",
    )
    train.add_argument(
        "--open-ports",
        dest="private",
        action="store_false",
        default=None,
        help="make a program's ports reachable from the network; anyone who can reach them can run code",
    )


def is_program(options: argparse.Namespace) -> bool:
    """Returns whether a run is a program."""
    for_ray = options.resources or any(getattr(options, name) is not None for name in _OF_RAY)
    return options.on != "compiled" and bool(options.actors or options.on or for_ray)


def take_flags(options: argparse.Namespace) -> None:
    """Applies Launchpad's flags to the options of `train`; raises UsageError for a flag without effect."""
    if not options.flags:
        return
    from acme_ext.launch.engines.program import launchpad_flags

    on, options.grace_s = launchpad_flags.take(options.flags)
    if on is not None and options.on not in (None, on):
        raise UsageError(f"--on {options.on} contradicts --lp_launch_type, which means --on {on}: give only one.")
    options.on = on or options.on
    if not is_program(options):
        raise UsageError(f"{options.flags[0]} is only for programs: add --actors N or --on processes.")


def placement_of(options: argparse.Namespace) -> Any:
    """Returns where the options of `train` say that a run is executed; raises UsageError if they exclude each other."""
    from acme_ext.config.assignments import parse_amounts
    from acme_ext.launch import placement

    recorded = options.environment.startswith("data:")
    kind: Any = placement.InProcess
    if options.on == "compiled":
        kind = placement.Compiled
    elif is_program(options):
        kind = placement.PROGRAMS[options.on or "processes"]
    if recorded:
        usual = {"num_envs": 1, "replay_every": None}
        for name, value in usual.items():
            if getattr(options, name) != value:
                raise UsageError(
                    f"--{name.replace('_', '-')} can't be used with data:FOLDER: a run on recorded data does not act, "
                    "and has no replay to save."
                )
        if options.actors:
            raise UsageError(
                "a run on recorded data has no actors: leave out --actors; --on processes makes it a program of a "
                "learner and evaluators."
            )
    kinds = (*placement.PROGRAMS.values(), placement.Compiled, placement.InProcess)
    names = dict.fromkeys(field.name for each in kinds for field in dataclasses.fields(each))
    values = {name: value for name in names if (value := getattr(options, name, None)) is not None}
    known = {field.name for field in dataclasses.fields(kind)}
    for name in values:
        if name not in known:
            option = _NAMES.get(name, name.replace("_", "-"))
            raise UsageError(f"--{option} {_why_not(name, options.on, kind is placement.InProcess)}")
    if "resources" in values:
        values["resources"] = parse_amounts(values["resources"])
    if issubclass(kind, placement.Program):
        values = {"actors": 0 if recorded else 1, **values}
    return kind(**values)


def _why_not(field: str, on: str | None, in_process: bool) -> str:
    """Returns in words why the option of a field can't be used where a run is executed."""
    if field == "seeds":
        return "is only for compiled runs: add --on compiled, or give one seed (--seed)."
    if field == "profile":
        return "is only for runs in one process: leave out the options of programs."
    if in_process:
        return "is only for programs: add --actors N or --on processes."
    if field in _OF_RAY:
        return "is only for programs on Ray: add --on ray."
    reason = {
        "compiled": "a compiled run has no nodes, and its replay is on the device",
        "threads": "threads share what their process has, and are never restarted",
    }
    return f"can't be used with --on {on}: {reason[on or '']}."


def say_seeds(result: Any) -> None:
    """Prints the results of the seeds of a compiled run."""
    for each in result.seeds:
        print(f"evaluation  {common.say_score(each.score)}  {each.run_dir}")
    means = [float(each.score.returns.mean()) for each in result.seeds]
    print(f"seeds       {len(means)}: mean {sum(means) / len(means):.4g}, least {min(means):.4g}")
    print(f"curve       {result.curve}")


@contextlib.contextmanager
def started_ahead(options: argparse.Namespace) -> Iterator[None]:
    """Starts a program's processes early, so that they import their libraries while this process imports its own."""
    from acme_ext.launch.hosts import launcher

    with contextlib.ExitStack() as stack:
        if options.on in (None, "processes"):
            stack.enter_context(launcher.prestart("local", private=options.private is not False))
        yield


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f'{text!r} is no object in JSON, as {{"pip": ["gymnasium"]}} is')
    return found
