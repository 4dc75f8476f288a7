"""Runs an experiment in one process: acting and learning in turn, at the ratio of the replay's rate limit."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from acme_ext import envs
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.acting.variables import VariableClient
from acme_ext.data.format import FolderWriter
from acme_ext.data.recorder import Recorder
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.envs.canonical import own_actions
from acme_ext.launch.runners import offline
from acme_ext.launch.runners.keeping import EPISODES, STEPS, ActingUpkeep
from acme_ext.launch.runners.patience import LostBatchError, Patience
from acme_ext.launch.runners.profile import RunProfile
from acme_ext.launch.runners.upkeep import check_learner, conclude
from acme_ext.launch.runs import demonstrations
from acme_ext.launch.runs.console import console
from acme_ext.launch.runs.evaluation import Evaluator, Result
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.feasibility import check, foresee
from acme_ext.launch.runs.store import RunStore, check_directory, hold, prepare, recorded_to, replay_folder
from acme_ext.replay import server
from acme_ext.replay.base import Replay
from acme_ext.replay.server import ReplayServer
from acme_ext.utils import worlds
from acme_ext.utils.native import native_stderr
from acme_ext.utils.progress import ProgressLine

if TYPE_CHECKING:
    from acme.utils.observers import EnvLoopObserver


def run(
    experiment: Experiment,
    *,
    fresh: bool = False,
    quiet: bool = False,
    profile: bool = False,
    observers: Callable[[int], "Sequence[EnvLoopObserver]"] | None = None,
    record: str | os.PathLike[str] | None = None,
    snapshot_every: int | None = None,
    skip_damaged: bool = False,
) -> Result:
    """Runs an experiment in this process until its budget is used, resuming from its run directory if possible.

    An experiment with `data` learns from the recorded data, see `launch.runners.offline`.

    SIGINT (Ctrl-C) or SIGTERM stops the run after a last save. A second SIGINT ends the process, or raises
    KeyboardInterrupt in an interactive session.

    Args:
        experiment: the experiment to run.
        fresh: starts from the beginning even if the directory holds a part of this run.
        quiet: shows no progress line.
        profile: measures how the run spends its time after compilation. Prints the shares, and writes them and a trace
            to the run directory, as `profile.txt` and `trace.json`.
        observers: a function that returns Acme observers for the i-th training environment. Their metrics are added to
            the actor's log.
        record: a folder to record all complete training episodes to, see `data.format`.
        snapshot_every: steps of the budget between exports of the evaluation policy to `snapshots/STEP` in the run
            directory, see `acme-ext export`; None for no exports.
        skip_damaged: skips damaged parts of recorded data with a message, instead of raising an error.

    Raises:
        UsageError: the arguments are invalid; nothing was started or written.
        RunError: the run had to stop (its loss was not finite, the disk is full, ...); the last undamaged checkpoint
            remains.
    """
    if experiment.data is not None:
        offline.refuse_acting(record, observers, profile)
        return offline.run(
            experiment, fresh=fresh, quiet=quiet, snapshot_every=snapshot_every, skip_damaged=skip_damaged
        )
    worlds.need_reverb("a run in one process")
    server.import_libraries()
    with contextlib.ExitStack() as stack:
        stack.enter_context(native_stderr())
        progress, report, interrupt = stack.enter_context(console(experiment, quiet=quiet))
        environment = experiment.make_environment(experiment.num_envs)
        stack.callback(environment.close)
        spec = envs.make_spec(environment)
        check(experiment, spec)
        agent = experiment.make_agent(spec)
        demos = demonstrations.rows_of(experiment, agent, spec, skip_damaged=skip_damaged, report=report)
        check_directory(experiment, fresh=fresh)
        check_learner(experiment, agent, spec, snapshot_every)
        recorded = recorded_to(record, experiment, spec)
        for warning in foresee(experiment, agent):
            report(warning)
        store = stack.enter_context(hold(prepare(experiment, fresh=fresh), experiment, report))
        if progress:
            report(f"the run directory is {store.rundir.path}")
        profiled = RunProfile() if profile else None
        parts = _Run(experiment, environment, store, progress, report, observers, recorded, stack, profiled, demos)
        if snapshot_every:
            from acme_ext.launch.runners.snapshots import Snapshots

            parts.snapshots = Snapshots(parts.loaded, store.rundir, parts.steps, snapshot_every)
        with parts.guarded():
            with parts.saved_if_it_fails():
                while parts.learner.steps < parts.pretrain_steps and not interrupt.requested:
                    parts.learner.step()
                    parts._housekeeping(interrupt)
                while parts.steps < experiment.steps and not interrupt.requested:
                    parts.loop.step()
                    parts._learn()
                    parts._housekeeping(interrupt)
                    if parts.snapshots:
                        parts.snapshots.look(parts.steps)
                parts.writer.flush()
                parts._learn(last=True)
            if parts.profile:
                parts.profile.report(parts, store.rundir.path, report)
            result = parts.result(interrupt)
        return conclude(result, experiment, store, interrupt)


class _Run(ActingUpkeep):
    """The parts of a run, and the schedule of its learner calls."""

    def __init__(
        self,
        experiment: Experiment,
        environment: BatchedEnvironment,
        store: RunStore,
        progress: ProgressLine | None,
        report: Callable[[str], None],
        observers: Callable[[int], "Sequence[EnvLoopObserver]"] | None,
        recorded: FolderWriter | None,
        stack: contextlib.ExitStack,
        profile: RunProfile | None,
        demos: np.ndarray | None,
    ):
        self.experiment, self.store, self.progress, self.report = experiment, store, progress, report
        spec = envs.make_spec(environment)
        self.spec, self.actions = spec, own_actions(environment)
        agent = experiment.make_agent(spec)
        replay = agent.replay
        restored = store.restore({"learner": agent.core.abstract_state()})
        # The environments of a resumed run begin new episodes, with seeds that the run has not used before.
        self.part = restored.info["state"].get("part", -1) + 1 if restored else 0
        if self.part:
            environment.close()
            environment = experiment.make_environment(experiment.num_envs, part=self.part)
            stack.callback(environment.close)

        self.replay = ReplayServer(replay.tables(), scratch=store.rundir.replay, restore=replay_folder(restored))
        self.patience = Patience(replay, lambda: self.replay.counts(replay.table))
        dataset = replay.dataset(self.replay.client, agent.sgd_steps_per_call, on_wait=self.patience.look)
        stack.callback(self.replay.close)
        stack.callback(dataset.close, wake=True)
        batches = profile.batches(dataset) if profile else dataset
        if demos is not None:
            batches = self.mixed = demonstrations.mixed(experiment, agent, demos, batches)
        self.pretrain_steps = agent.pretrain_steps if demos is not None else 0
        self.learner = agent.make_learner(
            batches, [self.replay.client], experiment.key("learner"), devices=experiment.devices()
        )
        stack.callback(self.learner.close)
        self.writer = replay.writer(self.replay.client, experiment.num_envs)
        if recorded is not None:
            self.writer = Recorder(recorded, self.writer)
        stack.callback(self.writer.close)
        self.actor = agent.make_actor(
            VariableClient(self.learner, agent.variable_period),
            experiment.key("actor"),
            num_envs=experiment.num_envs,
            writer=self.writer,
        )
        self.loop = EnvironmentLoop(
            environment,
            self.actor,
            on_episode=lambda episode: self._on_episode(episode),
            observers=[observers(i) for i in range(experiment.num_envs)] if observers else (),
        )
        self.on_policy = replay.fifo
        self.meter = SampleMeter(
            replay,
            replay.batch_size * agent.sgd_steps_per_call,
            *self.replay.counts(replay.table),
            ahead=0 if replay.fifo else 1,
        )
        self.evaluator = Evaluator(experiment, spec, self.learner)
        self.snapshots: Any = None  # a Snapshots, if the user asked for snapshots
        self.before = {STEPS: 0, EPISODES: 0}
        self.next_evaluation = experiment.evaluation.every
        if restored:
            self._resume(restored)
        self.logged_at = time.monotonic()
        self.profile = profile
        if profile:
            profile.watch(self, environment)

    def _learn(self, *, last: bool = False) -> None:
        calls = self.meter.due(self.writer.inserted, last=last)
        for _ in range(calls):
            self.patience.begin()
            try:
                self.learner.step()
            except LostBatchError:
                self.report("samples that Reverb selected did not arrive: a learner call is skipped.")
                break  # the remaining calls that are due now would not get batches either
        if self.profile:
            self.profile.look(self)
        if calls and self.on_policy:
            self.actor.update(wait=True)  # otherwise the next action would come from the old policy


class SampleMeter:
    """Computes how many learner calls the rate limit allows, from the numbers of inserted and sampled items.

    Acting and learning in turn by these numbers can't block for any valid limit, whatever the timing of Reverb's
    readers. The readers prefetch samples until they hold a batch or the limit stops them. So a call that is due gets
    its batch, at the latest when all pending inserts have arrived. While no call is due, the readers are not full, so
    inserts are not blocked.

    Args:
        replay: the replay, which has the limit.
        items_per_call: items that one learner call takes.
        inserts, samples: the table's counts from before the run was resumed.
        ahead: number of calls to delay, so that their batches are fetched while the actor acts. At most 1, because the
            readers have room for one batch besides the next. 0 for data to learn from as soon as it arrives.
    """

    def __init__(self, replay: Replay, items_per_call: int, inserts: int = 0, samples: int = 0, *, ahead: int = 0):
        self._replay, self._items_per_call, self._ahead = replay, items_per_call, ahead
        self._inserts, self._samples = inserts, samples

    def due(self, inserted: int, *, last: bool = False) -> int:
        """Returns how many learner calls to make after `inserted` inserted items, and counts them as made.

        If the limit has no ratio, this is always 1. With `last`, no call is delayed.
        """
        allowed = self._replay.samples_allowed(self._inserts + inserted)
        if math.isinf(allowed):
            return 1
        calls = int(allowed - self._samples) // self._items_per_call
        calls = max(0, calls if last else calls - self._ahead)
        self._samples += calls * self._items_per_call
        return calls
