"""The command `acme-ext tune`."""

import argparse
import importlib.util
from typing import Any

from acme_ext.commands import common, train, train_on
from acme_ext.errors import UsageError
from acme_ext.utils import install


def add(commands: Any) -> None:
    """Adds the command."""
    tune = commands.add_parser(
        "tune",
        help="search for an agent's best settings",
        description="Search a space of settings with trials, each of which is a run. Trials that do worse than others "
        "are stopped early. The best settings are then trained again on other seeds. The same command resumes a study, "
        "also while another process works on it.",
    )
    tune.add_argument("agent", metavar="AGENT", help="as for `acme-ext train`")
    tune.add_argument("environment", metavar="ENVIRONMENT", help="as for `acme-ext train`, including data:FOLDER")
    common.add_count(tune, "--trials", "trials in total (%(default)s)", default=30)
    common.add_count(tune, "--jobs", "trials in parallel (%(default)s)", default=1)
    common.add_count(tune, "--steps", "steps of each run (%(default)s)", default=50_000)
    tune.add_argument(
        "--space",
        action="append",
        default=[],
        metavar="NAME=RANGE",
        help="a field to search, or a new range for one: float:LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH, logint:LOW:HIGH, "
        "choice:A:B:..., or fixed to exclude it from the search",
    )
    common.add_set(tune, "a setting of all trials")
    common.add_env_set(tune)
    common.add_count(tune, "--num-envs", "environments of each run (%(default)s)", default=1)
    tune.add_argument("--eval-every", type=int, metavar="N", help="steps between evaluations (a tenth of the steps)")
    common.add_count(tune, "--eval-episodes", "episodes of the final evaluation")
    tune.add_argument(
        "--seed", type=int, default=100, metavar="N", help="seed of the first trial; then counted up (%(default)s)"
    )
    common.add_count(tune, "--best", "number of settings to train again (%(default)s)", default=3)
    common.add_count(tune, "--seeds", "seeds for training them again (%(default)s)", default=5)
    tune.add_argument(
        "--beside",
        nargs="*",
        choices=("defaults", "middle"),
        default=["defaults"],
        help="settings to train for comparison: the agent's defaults, the middle of the space (defaults)",
    )
    tune.add_argument(
        "--on",
        choices=("processes", "ray"),
        default="processes",
        help="where trials run: on this machine, or on the hosts of a Ray cluster that it belongs to (%(default)s)",
    )
    tune.add_argument("--ray-address", metavar="ADDRESS", help="the cluster's address (RAY_ADDRESS, or auto)")
    tune.add_argument(
        "--resources", metavar="NAME:N[,...]", default="CPU:1", help="resources of each run on Ray (%(default)s)"
    )
    tune.add_argument("--study", metavar="DIR", help="the study's directory (runs/tune-AGENT-ENVIRONMENT)")
    tune.add_argument("--quiet", action="store_true", help="print only the results")
    tune.set_defaults(command=_tune, if_stopped="; nothing is lost, and the same command goes on")


def _tune(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("optuna") is None:
        raise UsageError(f"a search needs optuna, not installed here: {install.command('tune')}")
    if options.on != "ray" and (options.ray_address is not None or options.resources != "CPU:1"):
        raise UsageError("--ray-address and --resources are only for trials on a cluster: add --on ray.")
    run = [options.agent, options.environment, "--steps", str(options.steps), "--num-envs"]
    run += [str(options.num_envs), *(x for text in options.set for x in ("--set", text))]
    run += [x for text in options.env_set for x in ("--env-set", text)]
    given = train.parse(*run)
    train_on.placement_of(given)
    experiment = train.experiment_from(given)
    from acme_ext.commands.tuning import tune

    return tune.tune(tune.tuned_by(options, experiment), options)
