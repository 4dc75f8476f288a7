"""The coordinator of a program: it counts steps, writes logs, schedules evaluations and stops the program.

The other nodes report to it a few times a second, and the reply has their orders. Reports contain totals and numbered
log rows, so a report that Courier delivers twice is counted once.
"""

import contextlib
import dataclasses
import functools
import pickle
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from acme_ext.acting.memories import added
from acme_ext.errors import RunError
from acme_ext.launch.engines.program.nodes import stops
from acme_ext.launch.engines.program.nodes.reports import STARTING, UNWRITTEN, Orders
from acme_ext.launch.hosts import launchpad as lp
from acme_ext.launch.roles import NodeId
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.session import Session, open_session
from acme_ext.utils.progress import ProgressLine, number
from acme_ext.utils.rundir import RunDirectory

_TICK_S = 0.05
_ADDED = ("environment_steps", "environment_episodes", "evaluator_steps")  # counts that are summed over nodes
_SILENT_S = 60.0  # without a report from an evaluator, before another one takes over its evaluation
_WRITE_S = 60.0  # without a report from a node that writes recorded episodes, before the program ends without it
_DRAIN_S = 1.0  # time for the actors to stop, before the learner makes its last save without them


class _Report(NamedTuple):
    time: float
    state: str
    counts: Mapping[str, float]


@dataclasses.dataclass
class _Task:
    """An evaluation that is due."""

    orders: dict[str, Any]
    node: NodeId | None = None  # the evaluator that has the task; if it is restarted, it repeats the task
    result: Mapping[str, Any] | None = None


class Coordinator:
    """The coordinator of a program; see the module.

    Args:
        experiment: the experiment that the program runs.
        actors: number of actors.
        evaluators: number of evaluators. A free evaluator takes the next evaluation.
        quiet: shows no progress line.
        resumes: steps of the checkpoint to resume from, which has already been verified. None: the latest undamaged
            checkpoint, if there is any.
    """

    def __init__(
        self,
        experiment: Experiment,
        actors: int,
        evaluators: int = 1,
        quiet: bool = False,
        resumes: int | None = None,
    ):
        self._experiment, self._num_actors, self._num_evaluators = experiment, actors, evaluators
        self._lock = threading.RLock()
        self._stack = contextlib.ExitStack()
        self._progress = self._stack.enter_context(
            ProgressLine(experiment.steps, shown=not quiet, budget=experiment.step_key)
        )
        rundir = RunDirectory.open(experiment.directory)
        self._session: Session = self._stack.enter_context(
            open_session(rundir, experiment, self._progress.print, self._progress, deferred=True)
        )
        restored = self._session.restore({}, resumes)
        state = restored.info["state"] if restored else {}
        self._base = dataclasses.replace(self._session.counts)
        self._starts: dict[str, int] = dict(state.get("starts", {}))
        # An earlier part of the run that saved no checkpoint also started nodes, and one of them may still be running.
        for name, start in rundir.read_starts().items():
            self._starts[name] = max(start, self._starts.get(name, -1))
        self._entered: set[str] = set()  # keys of the nodes that were started in this part of the run
        # The policies' memories and statistics, by the name of their node; see `acting.policy.Policy`.
        self._kept: dict[str, str] = dict(state.get("kept", {}))
        self._shared_statistics: dict[str, list] = dict(state.get("standings", {}))
        self._keepers: set[str] = set()  # the names in this part of the run; a resumed one may have other servers
        self._reports: dict[NodeId, _Report] = {}
        self._totals: dict[str, float] = dict.fromkeys(_ADDED, 0)  # sums over all reports, by the name of the count
        self._done: dict[NodeId, dict[str, Any]] = {}
        self._rows_seen: dict[NodeId, int] = {}
        self._tasks: list[_Task] = []  # evaluations that are not in the log yet, in the order of their steps
        self._scoring = threading.Lock()
        self._died: set[NodeId] = set()
        self._stopping_since: float | None = None
        self._asked_to_stop = self._closed = False
        self._begun = False  # whether the learner has begun in this program
        self._finished = threading.Event()

    # Methods that other nodes call ---------------------------------------------------------------------------------

    def enter(self, key: str) -> int:
        """Registers a start of a node; returns how often it was started before, including before a resume.

        The reports of earlier starts stay counted, but earlier starts can't report any more. If a call is delivered
        twice, one number is skipped.

        Args:
            key: the node's `NodeId.key`.
        """
        with self._lock:
            start = self._starts.get(key, -1) + 1
            self._starts[key] = start
            self._entered.add(key)
            self._session.rundir.write_starts(self._starts)
            return start

    def report(
        self, name: str, state: str, counts: Mapping[str, float], rows: Sequence[tuple[int, str, dict[str, Any]]] = ()
    ) -> tuple:
        """Takes a node's report; returns its Orders.

        Args:
            name: the text of the node's `NodeId`, with the start from `enter`.
            state: what the node is doing or waiting for, in words.
            counts: totals since the node was started.
            rows: log rows as (number, label, row); the node numbers them from 1.

        Raises:
            RunError: the node has been replaced by a newer start, or belongs to an earlier part of the run, whose
                totals are already counted. It may have survived on a host that was thought to be lost.
        """
        with self._lock:
            node = self._node(name)
            if self._closed:  # remaining nodes are about to be stopped, and the logs are complete
                return tuple(Orders(True, self._session.steps))
            former = self._reports[node].counts if node in self._reports else {}
            self._reports[node] = _Report(time.monotonic(), state, dict(counts))
            for count in _ADDED:
                self._totals[count] += counts.get(count, 0) - former.get(count, 0)
            total = self._session.counts
            total.environment_steps = int(self._base.environment_steps + self._totals["environment_steps"])
            total.environment_episodes = int(self._base.environment_episodes + self._totals["environment_episodes"])
            total.learner_steps = max(total.learner_steps, int(counts.get("learner_steps", 0)))
            for number, label, row in rows:
                if number > self._rows_seen.get(node, 0):
                    self._rows_seen[node] = number
                    if "parameter_version" in counts:
                        row = {**row, "parameter_lag": max(0, total.learner_steps - int(counts["parameter_version"]))}
                    self._session.log(label, {self._experiment.step_key: self._session.steps, **row})
            if self._stopping_since is None and self._session.steps >= self._experiment.steps:
                self._stopping_since = time.monotonic()
            stop = self._stopping_since is not None
            task = None
            if node.role == "learner":
                stop = stop and self._drained()
            if node.role == "evaluator":
                stop = self._asked_to_stop or self._finished.is_set()
                task = self._task_of(node.unstarted)
            orders = Orders(stop, self._session.steps, task)
        self._session.flush()
        return tuple(orders)

    def done(self, name: str, result: Mapping[str, Any]) -> None:
        """Takes an evaluator's score for its task, or another node's message that it has ended."""
        with self._lock:
            node = self._node(name)
            if node.role != "evaluator":
                self._done[node] = dict(result)
                return
            task = next((task for task in self._tasks if task.orders["task"] == result["task"]), None)
            if self._closed or task is None or task.result is not None:
                return  # too late, or delivered twice
            task.result = result
        self._log_scores()

    def keep(self, sender: str, name: str, memory: str, statistics: list | None) -> None:
        """Stores the memory of a node's policy under a name, as text, for the node's next start, and its statistics."""
        with self._lock:
            self._node(sender)
            self._keepers.add(name)
            self._kept[name] = memory
            if statistics is not None:
                self._shared_statistics[name] = statistics

    def kept(self, name: str) -> str | None:
        """Returns the memory that was stored under a name, in this part of the run or before it was resumed."""
        with self._lock:
            self._keepers.add(name)
            return self._kept.get(name)

    @property
    def _statistics(self) -> list | None:
        """The sum of the statistics of this part of the run; of those before it, as long as there are none."""
        now = [statistics for name, statistics in self._shared_statistics.items() if name in self._keepers]
        return added(now or list(self._shared_statistics.values()))

    def snapshot(self) -> dict[str, Any]:
        """Writes all pending log rows, and returns the program's state for a checkpoint."""
        self._session.flush(wait=True)
        with self._lock:
            return {
                **self._session.state(),
                "next_evaluation": None,  # it may be under way; a resumed program repeats what the log lacks
                "starts": dict(self._starts),
                "kept": dict(self._kept),
                "standings": dict(self._shared_statistics),
                "standing": self._statistics,
            }

    def request_stop(self, died: Sequence[str] = ()) -> None:
        """Stops the program after a last save, without an evaluation and without waiting for nodes that have died.

        Args:
            died: the `NodeId.name` of each of these nodes.
        """
        with self._lock:
            self._asked_to_stop = True
            self._died = {NodeId.parse(name).numbered for name in died}
            if self._stopping_since is None:
                self._stopping_since = time.monotonic()

    # The coordinator's own work ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Supervises the program until it ends, and then stops all nodes that still run."""
        try:
            with self._session.watched(self._moved, self.explain):
                while not (self._finished.is_set() and self._is_written()) and not stops.ends(_TICK_S):
                    if not self._asked_to_stop and lp.wait_for_stop(0):
                        self.request_stop()
                    with self._lock:
                        self._look()
                    self._session.flush(wait=True)
        finally:
            with self._lock:
                self._closed = True
            self._session.flush(wait=True)
            if self._finished.is_set() and not self._asked_to_stop:
                self._session.draw_curve()  # before the run's directory is unlocked
            with self._scoring, self._lock:
                self._stack.close()
        lp.stop()

    def _moved(self) -> tuple[float, ...]:
        """What changes while the program makes progress."""
        counts = self._session.counts
        evaluated = self._totals["evaluator_steps"]
        return counts.environment_steps, counts.learner_steps, evaluated, len(self._tasks)

    def explain(self) -> str:
        """Returns in words what each node is doing or waiting for."""
        with self._lock:
            lines = [f"\n  {name}: {doing}" for name, doing in self._doing().items()]
        return "".join(lines) or "no node has reported yet"

    def _doing(self) -> dict[str, str]:
        """Returns what each node is doing or waiting for; called with the lock held."""
        now = time.monotonic()
        return {
            str(node): f"{report.state} (last report {now - report.time:.0f} s ago)"
            for node, report in sorted(self._reports.items(), key=lambda item: str(item[0]))
            if node not in self._done and self._is_latest(node)
        }

    def _look(self) -> None:
        """Updates the progress line, schedules evaluations and ends the program when it is done; call with the lock."""
        session, experiment = self._session, self._experiment
        fields: dict[str, float] = dict(session.columns())
        of_replay: dict[str, float] = {}
        if learner := next((r for node, r in self._reports.items() if node.role == "learner"), None):
            self._begun |= learner.state != STARTING
            of_replay = {k: v for k, v in learner.counts.items() if k in ("samples_per_insert", "replay_size")}
            fields |= of_replay
        self._progress.update(**fields)
        in_words = ", ".join(f"{k.replace('_', ' ')} {number(v)}" for k, v in of_replay.items())
        session.tell(lambda: (self._doing(), in_words))
        if self._stopping_since is None:
            if session.evaluation_due and len(self._tasks) < self._num_evaluators:
                session.pass_evaluations()
                self._give_task(experiment.evaluation.episodes, final=False)
        elif (last := self._learner_done()) is not None:
            if self._asked_to_stop:
                self._finished.set()
            elif not self._finished.is_set() and not any(task.orders["final"] for task in self._tasks):
                session.counts.learner_steps = last["learner_steps"]
                session.warn_if_nothing_learned()
                self._give_task(experiment.evaluation.final_episodes, final=True)
        elif self._asked_to_stop and not self._begun:  # nothing to save
            self._finished.set()

    def _give_task(self, episodes: int, *, final: bool) -> None:
        steps = self._session.steps
        orders = {
            "task": f"{steps}-{final}",
            "steps": steps,
            "learner_steps": self._session.counts.learner_steps,
            "episodes": episodes,
            "final": final,
            "best": self._session.best.mean,
        }
        if self._shared_statistics:
            orders["standing"] = self._statistics
        self._tasks.append(_Task(orders))

    def _task_of(self, evaluator: NodeId) -> dict[str, Any] | None:
        """Returns an evaluator's unfinished task, or else assigns it the first one that no evaluator is doing."""
        open_tasks = [task for task in self._tasks if task.result is None]
        task = next((task for task in open_tasks if task.node == evaluator), None)
        if task is None:
            task = next((task for task in open_tasks if task.node is None or self._is_silent(task.node)), None)
        if task is None:
            return None
        task.node = evaluator
        return task.orders

    def _is_silent(self, evaluator: NodeId) -> bool:
        """Whether an evaluator has not reported for so long that it may be lost, with no host to restart it on."""
        heard = max((r.time for node, r in self._reports.items() if node.unstarted == evaluator), default=0.0)
        return time.monotonic() - heard > _SILENT_S

    def _log_scores(self) -> None:
        """Logs the scores in the order of their steps, even if the evaluators finish in another order."""
        with self._scoring:
            while not self._closed and self._tasks and (result := self._tasks[0].result) is not None:
                orders = self._tasks[0].orders
                params = result.get("params")
                self._session.evaluated(
                    result["row"],
                    self._session.columns(orders["steps"], result["version"]),
                    params=None if params is None else functools.partial(pickle.loads, params),
                    statistics=result.get("statistics"),
                    results=result["score"] if orders["final"] else None,
                )
                with self._lock:
                    del self._tasks[0]
                    if orders["final"]:
                        self._finished.set()
        self._session.flush()

    def _drained(self) -> bool:
        """Whether the actors have stopped, or their time to do so is over, so that the last checkpoint can be made."""
        gone = self._died | {node.numbered for node in self._done}
        left = {NodeId("actor", index) for index in range(self._num_actors)} - gone
        return not left or time.monotonic() - (self._stopping_since or 0) > _DRAIN_S

    def _is_written(self) -> bool:
        """Whether all recorded episodes are written, except those of nodes that have died or are silent."""
        now = time.monotonic()
        with self._lock:
            return not any(
                report.counts.get(UNWRITTEN) and now - report.time < _WRITE_S
                for node, report in self._reports.items()
                if self._is_latest(node) and node.numbered not in self._died
            )

    def _learner_done(self) -> dict[str, Any] | None:
        return next((result for node, result in self._done.items() if node.role == "learner"), None)

    def _node(self, name: str) -> NodeId:
        """Returns the node of a name; raises RunError if another takes its place, see `report`."""
        node = NodeId.parse(name)
        if node.start is not None and not (node.key in self._entered and self._is_latest(node)):
            raise RunError(f"{node} is not of this part of the run any more: another takes its place.")
        return node

    def _is_latest(self, node: NodeId) -> bool:
        return self._starts.get(node.key, node.start) == node.start
