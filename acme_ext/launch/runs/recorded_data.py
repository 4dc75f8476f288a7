"""Recorded data of an experiment: what it learns from instead of acting (`data`), or besides that (`demos`)."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from acme_ext.builders.base import Agent
from acme_ext.data.format import Folder
from acme_ext.errors import UsageError
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.identity import split_data
from acme_ext.replay import fixed
from acme_ext.replay.fixed import FixedBatches
from acme_ext.replay.mixed import Mixed, Source
from acme_ext.replay.table import RawBatch
from acme_ext.types import EnvironmentSpec


def check_recorded_data(
    experiment: Experiment, agent: Agent, spec: EnvironmentSpec, *, skip_damaged: bool = False
) -> Folder | None:
    """Returns the folder of an experiment's recorded data, whose episodes are not read yet; None if it uses none.

    Raises:
        UsageError: the folder is not recorded data, doesn't match the environment's specs or has no whole episode; or
            the agent can't learn from it; or the agent needs demonstrations and there are none.
    """
    given = experiment.demos if experiment.data is None else experiment.data
    if experiment.demos is None and experiment.builder.wants_demos and agent.replay.demo_ratio > 0:
        raise UsageError(f"{experiment.builder.name} learns from demonstrations: give it some (--demos DIR).")
    if given is None:
        return None
    folder = Folder(split_data(given)[0], skip_damaged=skip_damaged)
    folder.check_spec(spec)
    fixed.check_recordable(agent.replay)
    if experiment.data is not None and agent.replay.prioritized:
        raise UsageError(
            "this agent has a prioritized replay, which can't hold recorded data: set replay.prioritized to false."
        )
    folder.check_shards()
    return folder if experiment.data is not None or agent.replay.demo_ratio > 0 else None


def read_rows(experiment: Experiment, agent: Agent, folder: Folder, report: Callable[[str], None]) -> np.ndarray:
    """Returns the rows that an agent learns from, uint8 `[N, nbytes]`; calls `report` with each damaged part left out.

    Raises:
        UsageError: a part is damaged and the folder doesn't skip damaged ones, or the data doesn't suit the agent.
    """
    _, best = split_data(experiment.data or experiment.demos or "")
    rows = fixed.rows_of(agent.replay, folder.episodes(best), agent.policy.init_state(1))
    for said in folder.damaged:
        report(f"left out: {said}")
    return rows


def data_batches(experiment: Experiment, agent: Agent, rows: np.ndarray) -> FixedBatches:
    """Returns the batches of a run on recorded data; they depend only on the rows and the seed."""
    return FixedBatches(rows, agent.replay.batch_size * agent.sgd_steps_per_call, experiment.seed)


def mixed_batches(experiment: Experiment, agent: Agent, rows: np.ndarray, dataset: Iterator[RawBatch]) -> Mixed:
    """Returns batches that mix a run's own experience, from `dataset`, with its demonstrations, from `rows`."""
    replay, calls = agent.replay, agent.sgd_steps_per_call
    exponent = replay.priority_exponent if replay.prioritized else None
    demos = fixed.FixedRows(rows, exponent=exponent, offset=agent.demo_offset)
    return Mixed(
        {"own": Source(dataset, 1 - replay.demo_ratio), "demos": Source(demos, replay.demo_ratio)},
        replay.batch_size * calls,
        seed=experiment.seed,
        first_batches=math.ceil(agent.pretrain_steps / calls),
    )
