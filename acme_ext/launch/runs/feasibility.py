"""Checks an experiment before anything runs, and refuses or warns about settings that can't work."""

import bisect
from typing import TYPE_CHECKING, Any

from acme_ext import envs
from acme_ext.builders.base import Agent, Builder
from acme_ext.config import fields
from acme_ext.errors import UsageError
from acme_ext.launch.runs import contracts
from acme_ext.ops.search import load_mctx
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.types import EnvironmentSpec

if TYPE_CHECKING:
    from acme_ext.launch.runs.experiment import Experiment

NOTHING_LEARNED = (
    "warning: nothing was learned, because the replay never held enough for the learner's first batch: give the run "
    "more steps, or the agent a smaller batch_size or replay.min_size (replay.length if it learns from unrolls)."
)
"""The message at the end of a run whose learner has made no step."""


def check_fields(experiment: "Experiment") -> None:
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
    fields.check_fields(experiment)
    envs.check_names(experiment.environment_options)
    fields.check_seed(experiment.seed)
    if experiment.data is not None and experiment.demos is not None:
        raise UsageError("a run on recorded data can't use demonstrations too: give only one of data and demos.")


def check(experiment: "Experiment", spec: EnvironmentSpec) -> None:
    """Checks that the agent fits the environment, without computing anything.

    Raises:
        UsageError: the agent can't act in the environment, its parts don't fit it or each other, its replay can't work,
            or it searches and mctx is not installed.
    """
    if experiment.builder.searches:
        load_mctx()
    agent = experiment.make_agent(spec)
    contracts.check(experiment.builder, spec, agent)


def foresee(experiment: "Experiment", agent: Agent, writers: int = 1) -> list[str]:
    """Returns warnings for a run that acts in an environment, with this number of writers of experience.

    The agent may be made for recorded data; or the budget may be too small for the replay to reach the first batch, so
    that nothing is learned.
    """
    replay, steps, warnings = agent.replay, experiment.steps, []
    if experiment.builder.wants_data:
        warnings.append(
            f"warning: {experiment.builder.name} is made for recorded data (data:DIR in place of the environment); "
            "this run has none, and learns from its own actions."
        )
    batch = replay.batch_size * agent.sgd_steps_per_call
    # A step adds at most one item, because a short episode is a sequence too; unrolls go on over the ends of episodes.
    most = steps // replay.period if isinstance(replay, SequenceReplay) and replay.cross_episodes else steps
    held = replay.waiting * writers  # items that writers have not sent yet
    if replay.samples_allowed(most - held) < batch:
        needed = bisect.bisect_left(range(2**40), batch, key=replay.samples_allowed) + held
        items, field = ("unrolls", "replay.length") if replay.fifo else ("items", "replay.min_size")
        warnings.append(
            f"warning: nothing will be learned: the replay gives the learner its first batch after {needed:,} {items}, "
            f"and the run has {steps:,} steps: give the run more, or the agent a smaller {field} or batch_size."
        )
    return warnings
