"""Checks the fields of an experiment."""

from typing import Any

from acme_ext import envs
from acme_ext.builders.base import Builder
from acme_ext.config.fields import check_fields, check_seed
from acme_ext.errors import UsageError


def check_experiment_fields(experiment: Any) -> None:
    """Raises UsageError if a field of the experiment has an invalid value."""
    builder: Any = experiment.builder
    if isinstance(builder, type):
        raise UsageError(f"builder is the class {builder.__name__}: give an object of it, {builder.__name__}().")
    if not isinstance(builder, Builder):
        raise UsageError(
            f"builder is a {type(builder).__name__}: it must be a Builder, such as acme_ext.builders.DQN()."
        )
    if isinstance(experiment.environment, str) and experiment.environment.startswith("data:"):
        folder = experiment.environment.removeprefix("data:")
        raise UsageError(
            f"{experiment.environment!r} is no environment: give the one of the recording, and data={folder!r}."
        )
    envs.check_factory(experiment.environment)
    check_fields(experiment)
    envs.check_names(experiment.environment_options)
    check_seed(experiment.seed)
    if experiment.data is not None and experiment.demos is not None:
        raise UsageError("a run on recorded data can't use demonstrations too: give only one of data and demos.")
