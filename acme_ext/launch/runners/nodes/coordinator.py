"""The coordinator of a program: it counts steps, writes logs, schedules evaluations and stops the program.

The other nodes report to it a few times a second, and the reply has their orders. Reports contain totals and numbered
log rows, so a report that Courier delivers twice is counted once.
"""

import contextlib
import dataclasses
import pickle
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import launchpad as lp

from acme_ext.acting.carries import added
from acme_ext.errors import RunError
from acme_ext.launch.roles import NodeId
from acme_ext.launch.runners.nodes import stops
from acme_ext.launch.runners.nodes.reports import STARTING, UNWRITTEN, Orders
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.feasibility import NOTHING_LEARNED
from acme_ext.launch.runs.store import RunStore, draw_curve, hold, say_resumed
from acme_ext.utils import loggers
from acme_ext.utils.progress import ProgressLine, number
from acme_ext.utils.rundir import RunDirectory

_TICK_S = 0.05
_PATIENCE_S = 30.0  # time without progress after which the program prints what each node waits for
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
        self._acts = experiment.data is None  # otherwise the budget counts learner steps
        self._lock = threading.RLock()
        self._stack = contextlib.ExitStack()
        self._progress = self._stack.enter_context(
            ProgressLine(experiment.steps, shown=not quiet, budget=experiment.step_key)
        )
        rundir = RunDirectory.open(experiment.directory)
        self._store: RunStore = self._stack.enter_context(hold(rundir, experiment, self._progress.print))
        restored = self._store.restore({}, resumes)
        state = restored.info["state"] if restored else {}
        self._base = dict(state.get("counts", {"environment_steps": 0, "environment_episodes": 0}))
        self._learner_steps = state.get("learner_steps", 0)
        self._starts: dict[str, int] = dict(state.get("starts", {}))
        # An earlier part of the run that saved no checkpoint also started nodes, and one of them may still be running.
        for name, start in self._store.rundir.read_starts().items():
            self._starts[name] = max(start, self._starts.get(name, -1))
        self._entered: set[str] = set()  # keys of the nodes that were started in this part of the run
        # The policies' carries and standings, by the name of their node; see `acting.policy.Policy`.
        self._kept: dict[str, str] = dict(state.get("kept", {}))
        self._standings: dict[str, list] = dict(state.get("standings", {}))
        self._keepers: set[str] = set()  # the names in this part of the run; a resumed one may have other servers
        self._next_evaluation = self._evaluated_until()
        self._reports: dict[NodeId, _Report] = {}
        self._totals: dict[str, float] = dict.fromkeys(_ADDED, 0)  # sums over all reports, by the name of the count
        self._done: dict[NodeId, dict[str, Any]] = {}
        self._rows_seen: dict[NodeId, int] = {}
        self._writing = threading.Lock()
        self._rows: list[tuple[str, dict[str, Any]]] = []  # log rows to write, in order
        self._tasks: list[_Task] = []  # evaluations that are not in the log yet, in the order of their steps
        self._died: set[NodeId] = set()
        self._stopping_since: float | None = None
        self._asked_to_stop = self._closed = False
        self._begun = False  # whether the learner has begun in this program
        self._finished = threading.Event()
        if restored:
            self._progress.print(say_resumed(self._store.rundir, self._steps, experiment.steps))

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
            self._store.rundir.write_starts(self._starts)
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
                return tuple(Orders(True, self._steps))
            former = self._reports[node].counts if node in self._reports else {}
            self._reports[node] = _Report(time.monotonic(), state, dict(counts))
            for count in _ADDED:
                self._totals[count] += counts.get(count, 0) - former.get(count, 0)
            self._learner_steps = max(self._learner_steps, int(counts.get("learner_steps", 0)))
            for number, label, row in rows:
                if number > self._rows_seen.get(node, 0):
                    self._rows_seen[node] = number
                    if "parameter_version" in counts:
                        row = {**row, "parameter_lag": max(0, self._learner_steps - int(counts["parameter_version"]))}
                    self._log(label, row)
            if self._stopping_since is None and self._steps >= self._experiment.steps:
                self._stopping_since = time.monotonic()
            stop = self._stopping_since is not None
            task = None
            if node.role == "learner":
                stop = stop and self._drained()
            if node.role == "evaluator":
                stop = self._asked_to_stop or self._finished.is_set()
                task = self._task_of(node.unstarted)
            orders = Orders(stop, self._steps, task)
        self._write()
        return tuple(orders)

    def done(self, name: str, result: Mapping[str, Any]) -> None:
        """Takes an evaluator's score for its task, or another node's message that it has ended."""
        with self._lock:
            node = self._node(name)
            if node.role != "evaluator":
                self._done[node] = dict(result)
                return
        if result.get("params"):  # saved before the result is recorded, because the last result ends the program
            best = pickle.loads(result["params"])
            self._store.best.offer(
                result["row"]["episode_return_mean"], result["steps"], lambda: best, result["standing"]
            )
        with self._lock:
            task = next((task for task in self._tasks if task.orders["task"] == result["task"]), None)
            if self._closed or task is None or task.result is not None:
                return  # too late, or delivered twice
            task.result = result
            # Log the scores in the order of their steps, even if the evaluators finish in another order.
            while self._tasks and (score := self._tasks[0].result) is not None:
                self._log_score(self._tasks.pop(0).orders, score)
        self._write()

    def keep(self, sender: str, name: str, carry: str, standing: list | None) -> None:
        """Stores the carry of a node's policy under a name, as text, for the node's next start, and its standing."""
        with self._lock:
            self._node(sender)
            self._keepers.add(name)
            self._kept[name] = carry
            if standing is not None:
                self._standings[name] = standing

    def kept(self, name: str) -> str | None:
        """Returns the carry that was stored under a name, in this part of the run or before it was resumed."""
        with self._lock:
            self._keepers.add(name)
            return self._kept.get(name)

    @property
    def _standing(self) -> list | None:
        """The sum of the standings of this part of the run; of those before it, as long as there are none."""
        now = [standing for name, standing in self._standings.items() if name in self._keepers]
        return added(now or list(self._standings.values()))

    def snapshot(self) -> dict[str, Any]:
        """Writes all pending log rows, and returns the program's state for a checkpoint."""
        self._write(wait=True)
        with self._lock:
            return {
                "counts": {**self._base, **self._counts()},
                "starts": dict(self._starts),
                "wall_time_s": self._store.wall_time_s,
                "kept": dict(self._kept),
                "standings": dict(self._standings),
                "standing": self._standing,
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
        moved, last = time.monotonic(), None
        try:
            while not (self._finished.is_set() and self._is_written()) and not stops.ends(_TICK_S):
                if not self._asked_to_stop and lp.wait_for_stop(0):
                    self.request_stop()
                with self._lock:
                    self._look()
                    progress = (self._steps, self._learner_steps, self._totals["evaluator_steps"], len(self._tasks))
                self._write(wait=True)
                if progress != last:
                    moved, last = time.monotonic(), progress
                elif time.monotonic() - moved > _PATIENCE_S:
                    moved = time.monotonic()
                    self._progress.print(self.explain())
        finally:
            with self._lock:
                self._closed = True
            self._write(wait=True)
            if self._finished.is_set() and not self._asked_to_stop:
                draw_curve(self._experiment, self._store.rundir)  # before the run's directory is unlocked
            with self._lock:
                self._stack.close()
        lp.stop()

    def explain(self) -> str:
        """Returns in words what each node is doing or waiting for."""
        with self._lock:
            lines = [f"  {name}: {doing}" for name, doing in self._doing().items()]
        return "nothing has moved for a while:\n" + ("\n".join(lines) or "  no node has reported yet")

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
        steps, experiment = self._steps, self._experiment
        fields = self._both(steps, self._learner_steps)
        of_replay: dict[str, float] = {}
        if learner := next((r for node, r in self._reports.items() if node.role == "learner"), None):
            self._begun |= learner.state != STARTING
            of_replay = {k: v for k, v in learner.counts.items() if k in ("samples_per_insert", "replay_size")}
            fields |= of_replay
        self._progress.update(**fields)
        self._store.tell(self._doing(), ", ".join(f"{k.replace('_', ' ')} {number(v)}" for k, v in of_replay.items()))
        if self._stopping_since is None:
            free = len(self._tasks) < self._num_evaluators
            due = self._next_evaluation <= steps < experiment.steps  # at the end there is the final evaluation
            if experiment.evaluation.every and due and free:
                self._next_evaluation = experiment.evaluation.after(steps)
                self._give_task(steps, experiment.evaluation.episodes, final=False)
        elif (last := self._learner_done()) is not None:
            if self._asked_to_stop:
                self._finished.set()
            elif not self._finished.is_set() and not any(task.orders["final"] for task in self._tasks):
                self._learner_steps = last["learner_steps"]
                if not self._learner_steps:
                    self._progress.print(NOTHING_LEARNED)
                self._give_task(steps, experiment.evaluation.final_episodes, final=True)
        elif self._asked_to_stop and not self._begun:  # nothing to save
            self._finished.set()

    def _give_task(self, steps: int, episodes: int, *, final: bool) -> None:
        orders = {
            "task": f"{steps}-{final}",
            "steps": steps,
            "learner_steps": self._learner_steps,
            "episodes": episodes,
            "final": final,
            "best": self._store.best.mean,
        }
        if self._standings:
            orders["standing"] = self._standing
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

    def _log_score(self, task: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        at = self._both(task["steps"], result["version"])
        self._log("evaluator", {**at, **result["row"]})
        self._progress.update(evaluation=result["row"]["episode_return_mean"])
        if task["final"]:
            self._store.rundir.write_evaluation({"environment_steps": 0, **at, **result["score"]})
            self._finished.set()

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

    def _evaluated_until(self) -> int:
        """Returns the step of the next evaluation after those in the log; an interrupted one is repeated."""
        path = loggers.csv_path(self._store.rundir, "evaluator")
        steps = loggers.read_csv(path).get(self._experiment.step_key, ()) if path.is_file() else ()
        return self._experiment.evaluation.after(int(max(steps)) if len(steps) else 0)

    def _log(self, label: str, row: dict[str, Any]) -> None:
        """Queues a log row for the next `_write`; call with the lock held."""
        if "episode_return" in row:
            self._progress.update(episode_return=row["episode_return"])
        self._rows.append((label, {self._experiment.step_key: self._steps, **row, **self._store.now()}))

    def _write(self, wait: bool = False) -> None:
        """Writes the queued log rows in order, without blocking reports.

        If another thread is writing, returns at once and leaves the rows to it. With `wait`, waits for that thread
        first, even if it has taken all rows.
        """
        while (wait or self._rows) and self._writing.acquire(blocking=wait):
            wait = False
            try:
                with self._lock:
                    rows, self._rows = self._rows, []
                for label, row in rows:
                    self._store.log(label, row)
            finally:
                self._writing.release()

    def _both(self, steps: int, learner_steps: int) -> dict[str, float]:
        """Returns the step columns of a log row: environment steps, if the run has any, and learner steps."""
        return (
            {"environment_steps": steps, "learner_steps": learner_steps}
            if self._acts
            else {"learner_steps": learner_steps}
        )

    @property
    def _steps(self) -> int:
        """Steps of the budget."""
        if not self._acts:
            return self._learner_steps
        return int(self._base["environment_steps"] + self._totals["environment_steps"])

    def _counts(self) -> dict[str, int]:
        names = ("environment_steps", "environment_episodes")
        return {name: int(self._base[name] + self._totals[name]) for name in names}
