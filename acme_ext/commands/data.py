"""`acme-ext record` and `acme-ext data`: recorded data."""

import argparse
from typing import Any

from acme_ext.commands import common
from acme_ext.errors import UsageError


def add(commands: Any) -> None:
    """Adds the commands."""
    record = commands.add_parser(
        "record",
        help="record what the agent of a run does",
        description="Record what a run's agent does, in whole episodes; an existing folder is added to.",
    )
    record.add_argument("run", metavar="RUN", help="a run directory")
    record.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder of the data")
    record.add_argument("--steps", type=common.count, default=50_000, metavar="N", help="at least (%(default)s)")
    record.add_argument(
        "--policy",
        choices=("evaluation", "training", "random"),
        default="evaluation",
        help="how it acts: as in evaluation, with its exploration, or at random (%(default)s)",
    )
    record.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a setting of how the agent acts that isn't the run's, as noise_stddev=0.5",
    )
    record.add_argument("--best", action="store_true", help="the parameters of the run's best evaluation")
    record.add_argument("--num-envs", type=common.count, default=8, metavar="N", help="stepped together (%(default)s)")
    record.add_argument("--seed", type=int, default=0, metavar="N", help="another gives other data (%(default)s)")
    record.set_defaults(command=_record)

    data = commands.add_parser(
        "data",
        help="check recorded data and say what it holds",
        description="Check recorded data and describe it, or with --to write it in another format.",
    )
    data.add_argument(
        "source", metavar="DATA", help="a folder that --record or `record` has made; with --to minari:NAME or d4rl:FILE"
    )
    data.add_argument("--to", metavar="DATA", help="minari:NAME or d4rl:FILE.hdf5, or from these a folder")
    data.add_argument("--environment", metavar="ENVIRONMENT", help="that data of minari: or d4rl: is of")
    data.add_argument("--env-set", action="append", default=[], metavar="OPTION=VALUE", help="an environment's option")
    data.add_argument("--skip-damaged", action="store_true", help="leave out damaged parts of a folder")
    data.set_defaults(command=_data)


def _record(options: argparse.Namespace) -> int:
    from acme_ext.commands.record import record_run
    from acme_ext.launch.runs import settings

    folder = record_run(
        options.run,
        options.output,
        steps=options.steps,
        policy=options.policy,
        config=settings.split(options.set),
        num_envs=options.num_envs,
        seed=options.seed,
        best=options.best,
    )
    returns = folder.returns
    print(f"{folder.path}: {folder.steps:,} steps in {len(returns):,} episodes, return {returns.mean():.4g} on average")
    return 0


def _data(options: argparse.Namespace) -> int:
    from acme_ext.commands import exchange
    from acme_ext.commands.record import describe
    from acme_ext.data.format import Folder

    if options.to is not None:
        given, skip = common.environment_options(options), options.skip_damaged
        print(exchange.convert(options.source, options.to, options.environment, given, skip_damaged=skip))
        return 0
    if options.environment or options.env_set:
        raise UsageError("--environment and --env-set are for --to, of data that doesn't say its own.")
    print("\n".join(describe(Folder(options.source, skip_damaged=options.skip_damaged))))
    return 0
