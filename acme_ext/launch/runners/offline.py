"""Runs on recorded data: a learner and evaluations, without acting."""

import contextlib
import time
from typing import Any

import numpy as np

from acme_ext import envs
from acme_ext.builders.base import Agent
from acme_ext.data.format import Folder
from acme_ext.envs.canonical import own_actions
from acme_ext.errors import UsageError
from acme_ext.launch.processes.interrupt import Interrupt
from acme_ext.launch.runners.upkeep import Upkeep, check_learner, conclude
from acme_ext.launch.runs import demonstrations
from acme_ext.launch.runs.console import console
from acme_ext.launch.runs.evaluation import Evaluator, Loaded, Result
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.feasibility import check
from acme_ext.launch.runs.identity import split_data
from acme_ext.launch.runs.store import RunStore, hold, prepare, say_resumed
from acme_ext.replay import fixed
from acme_ext.replay.fixed import FixedBatches
from acme_ext.types import EnvironmentSpec
from acme_ext.utils.progress import ProgressLine


def run(
    experiment: Experiment,
    *,
    fresh: bool = False,
    quiet: bool = False,
    snapshot_every: int | None = None,
    skip_damaged: bool = False,
) -> Result:
    """Learns from an experiment's `data` until its budget of learner steps is used, resuming if possible.

    The environment is used for evaluation only. Two runs with the same seed give the same parameters, even if one of
    them was stopped and resumed.

    The arguments and errors are the same as in `launch.run`.
    """
    with contextlib.ExitStack() as stack:
        progress, report, interrupt = stack.enter_context(console(experiment, quiet=quiet))
        environment = experiment.make_environment(1, evaluation=True)
        spec, actions = envs.make_spec(environment), own_actions(environment)
        environment.close()
        agent, folder = check_data(experiment, spec, skip_damaged=skip_damaged)
        rows = demonstrations.read(agent, folder, experiment.data or "", report)
        check_learner(experiment, agent, spec, snapshot_every)
        store = stack.enter_context(hold(prepare(experiment, fresh=fresh), experiment, report))
        if progress:
            report(f"the run directory is {store.rundir.path}; {len(rows):,} {agent.replay.item}s of {folder.path}")
        parts = _OfflineRun(experiment, agent, rows, spec, store, progress, report)
        stack.callback(parts.learner.close)
        if snapshot_every:
            from acme_ext.launch.runners.snapshots import Snapshots

            def loaded() -> Loaded:
                return Loaded(experiment, spec, parts.learner, None, parts.steps, actions)

            parts.snapshots = Snapshots(loaded, store.rundir, parts.steps, snapshot_every)
        return conclude(parts.run(interrupt), experiment, store, interrupt)


def refuse_acting(*options: Any) -> None:
    """Raises UsageError if any of these options, which concern acting, is set."""
    if any(options):
        raise UsageError("a run on recorded data does not act: there is nothing to record, to observe or to profile.")


def check_data(experiment: Experiment, spec: EnvironmentSpec, *, skip_damaged: bool = False) -> tuple[Agent, Folder]:
    """Returns the agent of an experiment with `data`, and the data's folder, whose episodes are not read yet.

    Raises:
        UsageError: the folder is not recorded data, or doesn't match the environment's specs; or the agent can't learn
            from it.
    """
    folder = Folder(split_data(experiment.data or "")[0], skip_damaged=skip_damaged)
    folder.check_spec(spec)
    check(experiment, spec)
    agent = experiment.builder.make_agent(spec)
    demonstrations.check(experiment, agent, spec)
    fixed.check(agent.replay)
    if agent.replay.prioritized:
        raise UsageError(
            "this agent has a prioritized replay, which can't hold recorded data: set replay.prioritized to false."
        )
    return agent, folder


def batches_of(experiment: Experiment, agent: Agent, rows: np.ndarray) -> FixedBatches:
    """Returns the learner's batches; they depend only on the rows and the seed."""
    return FixedBatches(rows, agent.replay.batch_size * agent.sgd_steps_per_call, experiment.seed)


class _OfflineRun(Upkeep):
    """The parts of a run on recorded data, and its training loop."""

    def __init__(
        self,
        experiment: Experiment,
        agent: Any,
        rows: Any,
        spec: Any,
        store: RunStore,
        progress: ProgressLine | None,
        report: Any,
    ):
        self.experiment, self.store, self.progress = experiment, store, progress
        self.batches = batches_of(experiment, agent, rows)
        self.learner = agent.make_learner(self.batches, [], experiment.key("learner"), devices=experiment.devices())
        self.evaluator = Evaluator(experiment, spec, self.learner)
        self.snapshots: Any = None  # a Snapshots, if the user asked for snapshots
        self.next_evaluation = experiment.evaluation.every
        self.logged_at = time.monotonic()
        restored = store.restore({"learner": agent.core.abstract_state()})
        if restored:
            state = restored.info["state"]
            self.learner.restore(restored.trees["learner"])
            self.learner.steps = state["learner_steps"]
            self.batches.restore(state["batches"])
            scheduled = state.get("next_evaluation", 0)  # a program doesn't save this number
            self.next_evaluation = experiment.evaluation.resumed(self.learner.steps, scheduled)
            report(say_resumed(store.rundir, self.learner.steps, experiment.steps))

    @property
    def steps(self) -> int:
        return self.learner.steps

    @property
    def _counts(self) -> dict[str, int]:
        return {"learner_steps": self.learner.steps}

    def run(self, interrupt: Interrupt) -> Result:
        with self.store.checkpoints.explaining():
            while self.steps < self.experiment.steps and not interrupt.requested:
                self.learner.step()
                if self.snapshots:
                    self.snapshots.look(self.steps)
                self._housekeeping(interrupt)
            score = self._finish(interrupt)
            if score is not None:
                row = {"environment_steps": 0, "learner_steps": self.steps, **score.to_json()}
                self.store.rundir.write_evaluation(row)
        return Result(self.store.rundir.path, 0, self.steps, score, None)

    def _save(self, *, last: bool = False) -> None:
        self.learner.check()
        state = {
            "learner_steps": self.learner.steps,
            "batches": self.batches.save(),
            "next_evaluation": self.next_evaluation,
            "wall_time_s": self.store.wall_time_s,
        }
        self.store.checkpoints.save(self.steps, {"learner": self.learner.save()}, state, None)
