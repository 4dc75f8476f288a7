"""The parts of `acme-ext train` for programs and compiled runs."""

import argparse
import contextlib
import json
from collections.abc import Iterator
from typing import Any

from acme_ext.commands import common
from acme_ext.errors import UsageError
from acme_ext.utils import worlds

_NOT_COMPILED = (
    *("actors", "replay_shards", "evaluators", "accelerated", "inference", "experience", "restart", "open_ports"),
    *("ray_address", "ray_wait", "resources", "record", "profile", "skip_damaged", "demos", "snapshot_every"),
    *("inference_servers", "runtime_env_json", "replay_every"),
)
"""Options that have no meaning in a compiled run."""

_OF_PROGRAMS = (
    "replay_shards",
    "evaluators",
    "accelerated",
    "inference",
    "experience",
    "restart",
    "open_ports",
    "inference_servers",
)
"""Options that have no meaning in a run in one process."""

_OF_ACTING = ("num_envs", "replay_every")
"""Options that have no meaning in a run on recorded data."""


def add_options(train: argparse.ArgumentParser) -> None:
    """Adds the options of programs and compiled runs."""
    train.add_argument("--actors", type=common.count, metavar="N", help="run as a program with N actors")
    train.add_argument(
        "--on",
        choices=("processes", "threads", "ray", "compiled"),
        help="run as a program, with its nodes in processes, in threads or on a Ray cluster (processes); implies "
        "--actors 1, or no actors for recorded data. Or compiled: run environments written in JAX, acting, replay and "
        "learning as one compiled program",
    )
    train.add_argument(
        "--seeds", type=common.count, metavar="N", help="for a compiled run: run N seeds at once, starting from --seed"
    )
    train.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="the address of a Ray cluster that this machine belongs to, or auto; local starts Ray for this run (the "
        "variable RAY_ADDRESS, or local)",
    )
    train.add_argument(
        "--ray-wait", type=float, metavar="S", help="seconds to wait for the cluster to have room for all nodes"
    )
    train.add_argument(
        "--runtime-env-json",
        type=_object,
        metavar="JSON",
        help="Ray's runtime environment for the program's processes on every host, as for `ray job submit`",
    )
    train.add_argument(
        "--resources",
        action="append",
        default=[],
        metavar="NODES=NAME:N[,...]",
        help="the resources of each node of a kind in a program, such as learner=GPU:1,CPU:4; on Ray, also custom ones",
    )
    train.add_argument(
        "--replay-shards", type=common.count, default=1, metavar="N", help="replay servers of a program (%(default)s)"
    )
    train.add_argument(
        "--evaluators", type=common.count, default=1, metavar="N", help="evaluators of a program (%(default)s)"
    )
    train.add_argument(
        "--accelerated",
        default="learner,inference",
        metavar="NODES",
        help="the nodes of a program that can use GPUs: learner, inference, evaluator, actor (%(default)s)",
    )
    train.add_argument(
        "--inference",
        choices=("actor", "server"),
        default="actor",
        help="where a program applies the policy: in each actor, or in inference servers (%(default)s)",
    )
    train.add_argument(
        "--inference-servers",
        type=common.count,
        metavar="N",
        help="with --inference server: the number of servers, among which the actors are divided (1)",
    )
    train.add_argument(
        "--experience",
        choices=("actor", "server"),
        default="actor",
        help="which node writes the experience in a program with an inference server (%(default)s)",
    )
    train.add_argument(
        "--restart",
        type=int,
        default=0,
        metavar="N",
        help="how often per hour nodes that die, or the whole program, are restarted (%(default)s)",
    )
    train.add_argument(
        "--open-ports",
        action="store_true",
        help="make a program's ports reachable from the network; anyone who can reach them can run code",
    )


def is_program(options: argparse.Namespace) -> bool:
    """Returns whether a run is a program."""
    for_ray = options.resources or any(
        option is not None for option in (options.ray_address, options.ray_wait, options.runtime_env_json)
    )
    return options.on != "compiled" and bool(options.actors or options.on or for_ray)


def take_flags(options: argparse.Namespace) -> None:
    """Applies Launchpad's flags to the options of `train`; raises UsageError for a flag without effect."""
    if not options.flags:
        return
    from acme_ext.launch.runners import launchpad_flags

    on, options.grace_s = launchpad_flags.take(options.flags)
    if on is not None and options.on not in (None, on):
        raise UsageError(f"--on {options.on} contradicts --lp_launch_type, which means --on {on}: give only one.")
    options.on = on or options.on
    if not is_program(options):
        raise UsageError(f"{options.flags[0]} is only for programs: add --actors N or --on processes.")


def check(options: argparse.Namespace, usual: argparse.Namespace) -> None:
    """Raises UsageError if options exclude each other.

    Args:
        options: the options of `train`.
        usual: the options if only agent and environment are given.
    """
    if options.environment.startswith("data:"):
        for name in _OF_ACTING:
            if getattr(options, name) != getattr(usual, name):
                raise UsageError(
                    f"--{name.replace('_', '-')} can't be used with data:FOLDER: a run on recorded data does not act, "
                    "and has no replay to save."
                )
    if options.on == "compiled":
        for name in _NOT_COMPILED:
            if getattr(options, name) != getattr(usual, name):
                raise UsageError(
                    f"--{name.replace('_', '-')} can't be used with --on compiled: a compiled run has no nodes, and "
                    "its replay is on the device."
                )
    elif options.seeds is not None:
        raise UsageError("--seeds is only for compiled runs: add --on compiled, or give one seed (--seed).")
    elif is_program(options):
        if options.profile:
            raise UsageError("--profile is only for runs in one process: leave out the options of programs.")
        for name in ("accelerated", "open_ports") if options.on == "threads" else ():
            if getattr(options, name) != getattr(usual, name):
                raise UsageError(
                    f"--{name.replace('_', '-')} can't be used with --on threads: threads share what their process has."
                )
        if options.actors and options.environment.startswith("data:"):
            raise UsageError(
                "a run on recorded data has no actors: leave out --actors; --on processes makes it a program of a "
                "learner and evaluators."
            )
    else:
        for name in _OF_PROGRAMS:
            if getattr(options, name) != getattr(usual, name):
                raise UsageError(f"--{name.replace('_', '-')} is only for programs: add --actors N or --on processes.")


def run_compiled(experiment: Any, options: argparse.Namespace) -> int:
    """Runs an experiment as one compiled program, prints the results, and returns the command's exit code."""
    from acme_ext.launch.compiled import runner

    results = runner.run(experiment, seeds=options.seeds or 1, fresh=options.fresh, quiet=options.quiet)
    first = results[0]
    if first.stopped_by is not None:
        print(common.say_stopped(first.environment_steps, options, first.run_dir))
        return 128 + first.stopped_by
    for result in results:
        assert result.score is not None
        print(f"evaluation  {common.say_score(result.score)}  {result.run_dir}")
    if len(results) == 1:
        print(f"steps       {first.environment_steps:,} of the environment, {first.learner_steps:,} of the learner")
        print(f"curve       {first.curve}")
        return 0
    means = [float(result.score.returns.mean()) for result in results if result.score is not None]
    print(f"seeds       {len(means)}: mean {sum(means) / len(means):.4g}, least {min(means):.4g}")
    print(f"curve       {first.run_dir.parent / 'curve.png'}")
    return 0


@contextlib.contextmanager
def started_ahead(options: argparse.Namespace) -> Iterator[None]:
    """Starts a program's processes early, so that they import their libraries while this process imports its own."""
    worlds.need_reverb("a program")
    from acme_ext.launch.processes import launcher

    with contextlib.ExitStack() as stack:
        if options.on in (None, "processes"):
            stack.enter_context(launcher.ahead("processes.supervisor", private=not options.open_ports))
        yield


def run_program(experiment: Any, options: argparse.Namespace) -> Any:
    """Runs an experiment as a program; returns the `Result`."""
    from acme_ext.config.assignments import parse_amounts
    from acme_ext.launch.runners import distributed
    from acme_ext.launch.runners.program import Topology

    accelerated = tuple(name.strip() for name in options.accelerated.split(",") if name.strip())
    return distributed.run_program(
        experiment,
        Topology(
            0 if experiment.data is not None else options.actors or 1,
            options.replay_shards,
            options.evaluators,
            accelerated,
            options.inference,
            options.experience,
            parse_amounts(options.resources),
            options.inference_servers,
        ),
        fresh=options.fresh,
        quiet=options.quiet,
        on=options.on or "processes",
        restarts=options.restart,
        grace_s=options.grace_s,
        private=not options.open_ports,
        ray_address=options.ray_address,
        ray_wait_s=options.ray_wait,
        ray_runtime_env=options.runtime_env_json,
        record=options.record,
        snapshot_every=options.snapshot_every,
        skip_damaged=options.skip_damaged,
    )


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f'{text!r} is no object in JSON, as {{"pip": ["gymnasium"]}} is')
    return found
