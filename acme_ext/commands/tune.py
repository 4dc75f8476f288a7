"""`acme-ext tune`."""

import argparse
import importlib.util
from typing import Any

from acme_ext.commands import common, train
from acme_ext.errors import UsageError
from acme_ext.utils import install


def add(commands: Any) -> None:
    """Adds the command."""
    tune = commands.add_parser(
        "tune",
        help="search for an agent's best settings",
        description="Search a space of settings by trials, each a run of its own; trials that do worse than others did "
        "are ended early. The best are trained again on other seeds. The same command goes on with a study, also when "
        "another process works on it.",
    )
    tune.add_argument("agent", metavar="AGENT", help="as of `acme-ext train`")
    tune.add_argument("environment", metavar="ENVIRONMENT", help="likewise; data:FOLDER too")
    tune.add_argument("--trials", type=common.count, default=30, metavar="N", help="of the study in all (%(default)s)")
    tune.add_argument("--jobs", type=common.count, default=1, metavar="N", help="trials at a time (%(default)s)")
    tune.add_argument("--steps", type=common.count, default=50_000, metavar="N", help="of each run (%(default)s)")
    tune.add_argument(
        "--space",
        action="append",
        default=[],
        metavar="NAME=RANGE",
        help="float:LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH, logint:LOW:HIGH, choice:A:B:..., or fixed to leave the field "
        "alone; in place of the agent's own range of it, or beside them",
    )
    tune.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a setting of all trials")
    tune.add_argument("--env-set", action="append", default=[], metavar="OPTION=VALUE", help="an environment's option")
    tune.add_argument("--num-envs", type=common.count, default=1, metavar="N", help="stepped together (%(default)s)")
    tune.add_argument("--eval-every", type=int, metavar="N", help="steps between evaluations (a tenth of the steps)")
    tune.add_argument("--eval-episodes", type=common.count, metavar="N", help="of the evaluation at the end")
    tune.add_argument(
        "--seed", type=int, default=100, metavar="N", help="of the first trial; the others' follow (%(default)s)"
    )
    tune.add_argument("--best", type=common.count, default=3, metavar="N", help="settings trained again (%(default)s)")
    tune.add_argument(
        "--seeds", type=common.count, default=5, metavar="N", help="that they are trained on (%(default)s)"
    )
    tune.add_argument(
        "--beside",
        nargs="*",
        choices=("defaults", "middle"),
        default=["defaults"],
        help="trained beside the best: the agent's defaults, the middle of the space (defaults)",
    )
    tune.add_argument(
        "--on",
        choices=("processes", "ray"),
        default="processes",
        help="where trials run: on this machine, or on any host of a Ray cluster that it is a part of (%(default)s)",
    )
    tune.add_argument("--ray-address", metavar="ADDRESS", help="of the cluster (RAY_ADDRESS, or auto)")
    tune.add_argument(
        "--resources", metavar="NAME:N[,...]", default="CPU:1", help="what each run asks of Ray (%(default)s)"
    )
    tune.add_argument("--study", metavar="DIR", help="(runs/tune-AGENT-ENVIRONMENT)")
    tune.add_argument("--quiet", action="store_true", help="print the results alone")
    tune.set_defaults(command=_tune, if_stopped="; nothing is lost, and the same command goes on")


def _tune(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("optuna") is None:
        raise UsageError(f"a search needs optuna, not installed here: {install.command('tune')}")
    if options.on != "ray" and (options.ray_address is not None or options.resources != "CPU:1"):
        raise UsageError("--ray-address and --resources are of trials on a cluster: add --on ray.")
    run = [options.agent, options.environment, "--steps", str(options.steps), "--num-envs"]
    run += [str(options.num_envs), *(x for text in options.set for x in ("--set", text))]
    run += [x for text in options.env_set for x in ("--env-set", text)]
    experiment = train.experiment_from(train.parse(*run))
    from acme_ext.commands.tuning import tune

    return tune.tune(tune.tuned_by(options, experiment), options)
