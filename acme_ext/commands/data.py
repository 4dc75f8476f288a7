"""The commands `acme-ext record` and `acme-ext data`, for recorded data."""

import argparse
import signal
from typing import Any

from acme_ext.commands import common
from acme_ext.errors import UsageError


def add(commands: Any) -> None:
    """Adds the commands."""
    record = commands.add_parser(
        "record",
        help="record the experience of a run's agent",
        description="Record the experience of a run's agent, in complete episodes. If the folder exists, the episodes "
        "are added to it.",
    )
    record.add_argument("run", metavar="RUN", help="a run directory, or one of its checkpoints")
    record.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder of the data")
    common.add_count(record, "--steps", "minimum number of steps (%(default)s)", default=50_000)
    record.add_argument(
        "--policy",
        choices=("evaluation", "training", "random"),
        default="evaluation",
        help="act as in evaluation, as in training with exploration, or at random (%(default)s)",
    )
    common.add_set(record, common.ACTING)
    record.add_argument("--best", action="store_true", help="use the parameters of the run's best evaluation")
    common.add_count(record, "--num-envs", "environments stepped in parallel (%(default)s)", default=8)
    record.add_argument("--seed", type=int, default=0, metavar="N", help="random seed of the data (%(default)s)")
    record.set_defaults(command=_record)

    data = commands.add_parser(
        "data",
        help="check and describe recorded data",
        description="Check and describe recorded data. With --to, convert it to another format.",
    )
    data.add_argument(
        "source",
        metavar="DATA",
        help="a folder that --record or `record` has made; with --to, it can also be minari:NAME or d4rl:FILE",
    )
    data.add_argument(
        "--to", metavar="DATA", help="convert a folder to minari:NAME or d4rl:FILE.hdf5, or these to a folder"
    )
    data.add_argument(
        "--environment", metavar="ENVIRONMENT", help="the environment of minari: or d4rl: data that doesn't name it"
    )
    common.add_env_set(data)
    data.add_argument("--skip-damaged", action="store_true", help="skip damaged parts of a folder")
    data.set_defaults(command=_data)


def _record(options: argparse.Namespace) -> int:
    from acme_ext.commands.record import record_run
    from acme_ext.config.assignments import split_assignments
    from acme_ext.launch.hosts import interrupt

    said = iter(["stopping; finished episodes are kept.", "stopped at once; the last episodes are lost."])
    with interrupt.graceful(lambda _: print(next(said))) as asked:

        def stop_if_asked(steps: int) -> None:
            if asked.requested:
                raise KeyboardInterrupt

        try:
            folder = record_run(
                options.run,
                options.output,
                steps=options.steps,
                policy=options.policy,
                config=split_assignments(options.set),
                num_envs=options.num_envs,
                seed=options.seed,
                best=options.best,
                on_steps=stop_if_asked,
            )
        except KeyboardInterrupt:
            return 128 + (asked.signal or signal.SIGINT)
    returns = folder.returns
    held = f"{common.counted(folder.steps, 'step')} in {common.counted(len(returns), 'episode')}"
    print(f"{folder.path}: {held}, return {returns.mean():.4g} on average")
    return 0


def _data(options: argparse.Namespace) -> int:
    from acme_ext.commands import exchange
    from acme_ext.commands.record import describe_recording
    from acme_ext.data.format import Folder

    if options.to is not None:
        given, skip = common.environment_options(options), options.skip_damaged
        print(exchange.convert(options.source, options.to, options.environment, given, skip_damaged=skip))
        return 0
    if options.environment or options.env_set:
        raise UsageError("--environment and --env-set require --to, and data that doesn't name its environment.")
    print("\n".join(describe_recording(Folder(options.source, skip_damaged=options.skip_damaged))))
    return 0
