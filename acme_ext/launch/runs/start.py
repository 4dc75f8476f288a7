"""The checks before the start of a run, in whatever engine; nothing is written."""

import dataclasses
from typing import Any, NamedTuple

from acme_ext.builders.base import Agent
from acme_ext.data.format import Folder, FolderWriter
from acme_ext.launch.placement import Compiled, Placement, RunOptions
from acme_ext.launch.runs.directory import check_directory, recorded_to
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.recorded_data import check_recorded_data
from acme_ext.launch.runs.validation import budget_warnings, check_agent
from acme_ext.learning.learner import over_devices
from acme_ext.replay import blocks
from acme_ext.types import EnvironmentSpec


class Start(NamedTuple):
    """A run that may start."""

    experiment: Experiment
    spec: EnvironmentSpec
    actions: Any  # the environment's original action spec; in `spec`, continuous actions lie in [-1, 1]; None: unknown
    agent: Agent
    experiments: list[Experiment]  # one for each run directory: those of the single seeds
    configs: list[dict[str, Any]]  # of the run directories
    folder: Folder | None  # recorded data to learn from
    recording: FolderWriter | None  # where all complete training episodes are recorded
    warnings: list[str]


def check_start(
    experiment: Experiment,
    spec: EnvironmentSpec,
    actions: Any,
    on: Placement,
    options: RunOptions,
    *,
    writers: int = 1,
) -> Start:
    """Returns what a run starts from, after all checks that its engine doesn't make itself.

    Args:
        experiment: the experiment to run.
        spec, actions: see `Start`.
        on: where it is executed.
        options: the run's options.
        writers: the number of writers of experience.

    Raises:
        UsageError: the experiment can't work, its directory holds something else, or its recorded data doesn't fit.
    """
    agent = counted = check_agent(experiment, spec)
    if isinstance(on, Compiled):  # it makes one learner step after another, and its replay has no blocks
        agent = dataclasses.replace(agent, sgd_steps_per_call=1)
        counted = dataclasses.replace(agent, replay=blocks.singly(agent.replay))
    folder = check_recorded_data(experiment, agent, spec, skip_damaged=options.skip_damaged)
    experiments = on.experiments(experiment)
    # All are checked before the first is changed.
    kind = None if experiment.data is not None or isinstance(on, Compiled) else experiment.table_kind
    configs = [
        check_directory(each, fresh=options.fresh, arrangement=on.arrangement, table=kind) for each in experiments
    ]
    recording = recorded_to(options.record, experiment, spec)
    warnings = [] if experiment.data is not None else budget_warnings(experiment, counted, writers)
    if kind == "embedded" and experiment.table == "auto":
        warnings.append("the replay is in the embedded table, because Reverb is not installed here.")
    return Start(experiment, spec, actions, agent, experiments, configs, folder, recording, warnings)


def check_learner(experiment: Experiment, agent: Agent, spec: EnvironmentSpec, options: RunOptions) -> None:
    """Checks what needs the learner's devices.

    Raises:
        UsageError: there are fewer devices than the learner needs, its batch doesn't divide over them, or the policy
            can't be exported and `snapshot_every` is set.
    """
    experiment.devices()
    over_devices(agent.replay.batch_size, experiment.num_devices)
    if options.snapshot_every:
        from acme_ext.launch.exporting.snapshots import check_policy

        check_policy(experiment, spec, agent)
