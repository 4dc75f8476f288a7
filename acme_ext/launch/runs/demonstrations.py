"""Demonstrations: recorded data that a run learns from together with its own experience."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from acme_ext.builders.base import Agent
from acme_ext.data.format import Folder
from acme_ext.errors import UsageError
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.identity import split_data
from acme_ext.replay import fixed
from acme_ext.replay.dataset import RawBatch
from acme_ext.replay.mixed import Mixed, Source
from acme_ext.types import EnvironmentSpec


def check(experiment: Experiment, agent: Agent, spec: EnvironmentSpec, *, skip_damaged: bool = False) -> Folder | None:
    """Returns the folder of an experiment's demonstrations; None if it has none, or if its batches contain none.

    Raises:
        UsageError: the folder is not recorded data, doesn't match the environment's specs or is damaged; or the agent
            can't learn from it; or the agent needs demonstrations and there are none; or `skip_damaged` is set and
            there is no data.
    """
    if experiment.demos is None:
        if skip_damaged:
            raise UsageError("this run uses no recorded data, so there are no damaged parts to leave out.")
        if experiment.builder.wants_demos and agent.replay.demo_ratio > 0:
            raise UsageError(f"{experiment.builder.name} learns from demonstrations: give it some (--demos DIR).")
        return None
    fixed.check(agent.replay)
    folder = Folder(split_data(experiment.demos)[0], skip_damaged=skip_damaged)
    folder.check_spec(spec)
    folder.check_shards()
    return folder if agent.replay.demo_ratio > 0 else None


def rows_of(
    experiment: Experiment,
    agent: Agent,
    spec: EnvironmentSpec,
    *,
    skip_damaged: bool = False,
    report: Callable[[str], None] = print,
) -> np.ndarray | None:
    """Returns the rows of an experiment's demonstrations, uint8 `[N, nbytes]`; None where `check` returns None.

    Raises what `check` raises. Calls `report` with each damaged part that is left out.
    """
    folder = check(experiment, agent, spec, skip_damaged=skip_damaged)
    if folder is None:
        return None
    return read(agent, folder, experiment.demos or "", report)


def read(agent: Agent, folder: Folder, given: str, report: Callable[[str], None]) -> np.ndarray:
    """Returns the rows that an agent learns from, uint8 `[N, nbytes]`; calls `report` with each damaged part left out.

    Args:
        agent: the agent.
        folder: the recorded data.
        given: the folder as the user names it, `DIR` or `DIR?best=SHARE`.
        report: see above.

    Raises:
        UsageError: a part is damaged and the folder doesn't skip damaged ones, or the data doesn't suit the agent.
    """
    _, best = split_data(given)
    rows = fixed.rows_of(agent.replay, folder.episodes(best), agent.policy.init_state(1))
    for said in folder.damaged:
        report(f"left out: {said}")
    return rows


def mixed(experiment: Experiment, agent: Agent, rows: np.ndarray, dataset: Iterator[RawBatch]) -> Mixed:
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
