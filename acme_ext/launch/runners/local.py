"""A run in one process: acting and learning in turn, as the replay's rate limit has it."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from acme_ext import envs
from acme_ext.acting.loop import EnvironmentLoop, Episode
from acme_ext.acting.variables import VariableClient
from acme_ext.data.format import FolderWriter
from acme_ext.data.recorder import Recorder
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.envs.canonical import own_actions
from acme_ext.errors import UsageError
from acme_ext.launch.processes.interrupt import Interrupt
from acme_ext.launch.runners.meter import LostBatchError, Patience, SampleMeter
from acme_ext.launch.runners.upkeep import Upkeep, conclude, console
from acme_ext.launch.runs import demonstrations
from acme_ext.launch.runs.evaluation import Evaluator, Loaded, Result
from acme_ext.launch.runs.experiment import NOTHING_LEARNED, Experiment, about, check, foresee
from acme_ext.launch.runs.store import RunStore, hold, prepare, replay_folder
from acme_ext.replay import server
from acme_ext.replay.server import ReplayServer
from acme_ext.utils import files, worlds
from acme_ext.utils.native import native_stderr
from acme_ext.utils.profiling import Profiler
from acme_ext.utils.progress import ProgressLine
from acme_ext.utils.watchdog import Watchdog

if TYPE_CHECKING:
    from acme.utils.observers import EnvLoopObserver

_STEPS, _EPISODES = "environment_steps", "environment_episodes"  # names of what is counted
_COMPILED_CALLS = 2  # of the learner, after which nothing is left to compile: a profile begins there


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
    """Runs an experiment in this process, from where its run directory stands to its budget.

    One with `data` learns from that, see `launch.offline`.

    Args:
        experiment: what to run.
        fresh: starts anew even if the directory holds a part of this run.
        quiet: shows no progress line.
        profile: measures where the time goes once everything is compiled, prints the shares, and writes them and a
            trace to the run directory, `profile.txt` and `trace.json`.
        observers: makes Acme's observers of the i-th training environment; their metrics go into the actor's log.
        record: a folder that all whole episodes of training are recorded to, see `data.format`.
        snapshot_every: steps of the budget between exports of the evaluation policy to `snapshots/STEP` of the run
            directory, see `acme-ext export`; None for none.
        skip_damaged: leaves out damaged parts of recorded data, with a note, in place of refusing them.

    A SIGINT (Ctrl-C) or SIGTERM stops it after a last save; a second SIGINT ends the process, or raises
    KeyboardInterrupt in an interactive session.

    Raises:
        UsageError: nothing was started or written; the message says why.
        RunError: the run had to stop (its loss was not finite, the disk is full, ...); the last good checkpoint stands.
    """
    if experiment.data is not None:
        from acme_ext.launch.runners import offline

        if record is not None or observers is not None or profile:
            raise UsageError(
                "a run on recorded data does not act: there is nothing to record, to observe or to profile."
            )
        return offline.run(
            experiment, fresh=fresh, quiet=quiet, snapshot_every=snapshot_every, skip_damaged=skip_damaged
        )
    if skip_damaged and experiment.demos is None:
        raise UsageError("there is no recorded data in this run, of which damaged parts could be left out.")
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
        if warning := foresee(experiment, spec):
            report(warning)
        store = stack.enter_context(hold(prepare(experiment, fresh=fresh), experiment, report))
        if progress:
            report(f"the run directory is {store.rundir.path}")
        profiler = Profiler() if profile else None
        parts = _Run(experiment, environment, store, progress, report, observers, record, stack, profiler, demos)
        if snapshot_every:
            from acme_ext.launch.runners.snapshots import Snapshots

            parts.snapshots = Snapshots(parts.loaded, store.rundir, parts.steps, snapshot_every)
        result = parts.run(interrupt)
    return conclude(result, experiment, store, interrupt)


class _Run(Upkeep):
    """The parts of a run, and the loop over them."""

    def __init__(
        self,
        experiment: Experiment,
        environment: BatchedEnvironment,
        store: RunStore,
        progress: ProgressLine | None,
        report: Callable[[str], None],
        observers: Callable[[int], "Sequence[EnvLoopObserver]"] | None,
        record: str | os.PathLike[str] | None,
        stack: contextlib.ExitStack,
        profiler: Profiler | None,
        demos: np.ndarray | None,
    ):
        self.experiment, self.store, self.progress, self.report = experiment, store, progress, report
        spec = envs.make_spec(environment)
        self.spec, self.actions = spec, own_actions(environment)
        agent = experiment.make_agent(spec)
        replay = agent.replay
        template = agent.core.abstract_state()
        restored = store.restore({"learner": template})
        state: dict[str, Any] = restored.info["state"] if restored else {}
        # A resumed run's environments begin new episodes, with seeds that no earlier part of the run has used.
        self.part = state.get("part", -1) + 1
        if self.part:
            environment.close()
            environment = experiment.make_environment(experiment.num_envs, part=self.part)
            stack.callback(environment.close)

        self.replay = ReplayServer(replay.tables(), scratch=store.rundir.replay, restore=replay_folder(restored))
        self.patience = Patience(replay, lambda: self.replay.counts(replay.table))
        dataset = replay.dataset(self.replay.client, agent.sgd_steps_per_call, on_wait=self.patience.look)
        stack.callback(self.replay.close)
        stack.callback(dataset.close, wake=True)
        self.profiler, self.profiled_from = profiler, 0
        batches = profiler.iterator("waiting for replay", dataset) if profiler else dataset
        if demos is not None:
            batches = self.mixed = demonstrations.mixed(experiment, agent, demos, batches)
        self.pretrain_steps = agent.pretrain_steps if demos is not None else 0
        self.learner = agent.make_learner(
            batches, [self.replay.client], experiment.key("learner"), devices=experiment.devices()
        )
        stack.callback(self.learner.close)
        self.writer = replay.writer(self.replay.client, experiment.num_envs)
        if record is not None:
            self.writer = Recorder(FolderWriter(record, spec, about(experiment)), self.writer)
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
        self.snapshots: Any = None  # a Snapshots, where some are wanted
        self.before = {_STEPS: 0, _EPISODES: 0}  # in the parts of the run that this one goes on from
        self.next_evaluation = state.get("next_evaluation", experiment.evaluation.every)
        if restored:
            self.before = {**self.before, **state["counts"]["counts"]}
            self.actor.restore(state["actor"])
            self.learner.restore(restored.trees["learner"])
            self.learner.steps = state["learner_steps"]
            if self.mixed:
                self.mixed.restore(state["demos"])
            report(f"resuming {store.rundir.path} at step {self.steps:,}.")
        self.logged_at = time.monotonic()
        if profiler:
            profiler.wrap("environment", environment, "step", "reset")
            profiler.wrap("policy", self.actor, "select_action", "update")
            profiler.wrap("writer", self.writer, "add", "add_first", "flush", "wait")
            profiler.wrap("learner", self.learner, "step")
            profiler.wrap("evaluation", self, "_evaluate")
            profiler.wrap("housekeeping", self, "_housekeeping", "_on_episode", "_save", "_log_learner")

    @property
    def steps(self) -> int:
        return self.before[_STEPS] + self.loop.steps

    @property
    def _counts(self) -> dict[str, int]:
        return {"environment_steps": self.steps, "learner_steps": self.learner.steps}

    def run(self, interrupt: Interrupt) -> Result:
        watchdog = Watchdog(
            lambda: (self.steps, self.learner.steps, self.evaluator.steps),
            lambda: f"nothing has moved for a while: {self.replay.describe()}",
            self.report,
        )
        with self.store.checkpoints.explaining(), watchdog:
            try:
                while self.learner.steps < self.pretrain_steps and not interrupt.requested:
                    self.learner.step()
                    self._housekeeping(interrupt)
                while self.steps < self.experiment.steps and not interrupt.requested:
                    self.loop.step()
                    self._learn()
                    self._housekeeping(interrupt)
                    if self.snapshots:
                        self.snapshots.look(self.steps)
                self.writer.flush()
                self._learn(last=True)
            except Exception:
                # Whatever raised, an environment say: what was learned is good, unless the learner itself says no.
                self._save(confirmed=False)
                raise
            if self.profiler:
                self._report_profile(self.profiler)
            if self.steps >= self.experiment.steps and not self.learner.steps:
                self.report(NOTHING_LEARNED)
            score = self._finish(interrupt)
            if score is not None:
                self.store.rundir.write_evaluation({"environment_steps": self.steps, **score.to_json()})
        return Result(self.store.rundir.path, self.steps, self.learner.steps, score, None)

    def _learn(self, *, last: bool = False) -> None:
        calls = self.meter.due(self.writer.inserted, last=last)
        for _ in range(calls):
            self.patience.begin()
            try:
                self.learner.step()
            except LostBatchError:
                self.report("samples that Reverb drew have not come out of it: a learner call is passed over.")
                break  # the others of now can't be served either
        if self.profiler and calls and not self.profiled_from and self.learner.calls >= _COMPILED_CALLS:
            self.profiler.restart()
            self.profiled_from = self.steps
        if calls and self.on_policy:
            self.actor.update(wait=True)  # otherwise the next action would still be the old policy's

    def _doing(self) -> tuple[dict[str, str], str]:
        return {"the run": "acting and learning in turn"}, self.replay.describe()

    def _standing(self) -> list | None:
        return self.actor.core.standing() if self.actor.core else None

    def loaded(self) -> Loaded:
        """Returns the agent as it is now."""
        return Loaded(self.experiment, self.spec, self.learner, self._standing(), self.steps, self.actions)

    def _report_profile(self, profiler: Profiler) -> None:
        profiler.stop()
        table = profiler.table(max(1, self.steps - self.profiled_from), "step")
        trace, text = self.store.rundir.path / "trace.json", self.store.rundir.path / "profile.txt"
        profiler.write_trace(trace)
        with files.replacing(text) as temporary:
            temporary.write_text(table, encoding="utf-8")
        self.report(f"{table}the table is {text}, the trace {trace}: https://ui.perfetto.dev opens it.")

    def _on_episode(self, episode: Episode) -> None:
        row = {"episode_return": episode.episode_return, "episode_length": episode.length, **episode.metrics}
        self.store.log("actor", {"environment_steps": self.steps, **row})
        if self.progress:
            self.progress.update(episode_return=episode.episode_return)

    def _save(self, *, last: bool = False, confirmed: bool = True) -> None:
        """Saves everything that the run goes on from; refuses (NotFiniteError) if learning has gone wrong.

        With `confirmed` the replay holds all that was written, for which no learner call may be due.
        """
        self.learner.check()
        if confirmed:
            self.writer.wait()
        state = {
            "counts": {"counts": {_STEPS: self.steps, _EPISODES: self.before[_EPISODES] + self.loop.episodes}},
            "actor": self.actor.save(),
            "standing": self._standing(),
            "learner_steps": self.learner.steps,
            "next_evaluation": self.next_evaluation,
            "part": self.part,
            "wall_time_s": self.store.wall_time_s,
            **({"demos": self.mixed.save()} if self.mixed else {}),
        }
        self.store.checkpoints.save(self.steps, {"learner": self.learner.save()}, state, self.replay, last=last)
