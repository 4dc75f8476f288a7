"""The node of the learner."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np

from acme_ext.acting.remote import VariableServer
from acme_ext.acting.shared import SharedFetch
from acme_ext.builders.base import Agent
from acme_ext.envs.canonical import own_actions
from acme_ext.launch.engines.program.nodes import stops
from acme_ext.launch.engines.program.nodes.replay import RemoteReplay
from acme_ext.launch.engines.program.nodes.reports import Reporter, StopWaitingError, enter, find, waiting
from acme_ext.launch.hosts import launchpad as lp
from acme_ext.launch.runs.evaluation import Loaded
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.recorded_data import check_recorded_data, data_batches, mixed_batches, read_rows
from acme_ext.launch.runs.saving import Contents, Counts, RunCheckpoints
from acme_ext.replay.mixed import Mixed
from acme_ext.replay.shards import Shards
from acme_ext.types import EnvironmentSpec
from acme_ext.utils.calls import RemoteCall
from acme_ext.utils.rundir import RunDirectory

_LOG_EVERY_S = 1.0


class LearnerClient:
    """The client of the learner: `variables`, and the methods of its node through Courier.

    Args:
        client: the Courier client.
        token: the program's secret.
    """

    def __init__(self, client: Any, token: bytes):
        self._client, self._token = client, token
        self._of_thread = threading.local()

    def variables(self, held: int) -> tuple[int, Any]:
        """Returns the policy's parameters, see `acting.remote.Fetch`. The nodes of a host fetch them only once."""
        if (fetch := getattr(self._of_thread, "fetch", None)) is None:
            fetch = self._of_thread.fetch = SharedFetch(self.newest, self._token + self._client.address.encode())
        return fetch(held)

    def newest(self, held: int) -> tuple[int, Any]:
        """Returns them directly from the learner; each thread has its own connection."""
        if (call := getattr(self._of_thread, "call", None)) is None:
            here = functools.partial(find, self._client)
            call = self._of_thread.call = RemoteCall(here, token=self._token, awake_s=0.0)
        call.begin(held)
        return call.end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class LearnerHandle(lp.Handle):
    """A Launchpad handle, which becomes a `LearnerClient` in the nodes that use the learner."""

    def __init__(self, methods: lp.CourierHandle, token: bytes):
        self._methods, self._token = methods, token

    def dereference(self) -> LearnerClient:
        return LearnerClient(self._methods.dereference(), self._token)


class LearnerCourierNode(lp.CourierNode):
    """The learner as a Launchpad node.

    Args:
        make_learner: makes the `LearnerNode`.
        token: the secret that nodes must send to get parameters.
        arguments: arguments of the `LearnerNode`.
        options: keyword arguments of the `LearnerNode`.
    """

    def __init__(self, make_learner: Callable[..., Any], token: bytes, *arguments: Any, **options: Any):
        super().__init__(make_learner)
        self._token = token
        self.configure(*arguments, token=token, address=self.courier_address, **options)

    def create_handle(self) -> Any:
        handle: Any = LearnerHandle(super().create_handle(), self._token)
        return self._track_handle(handle)


class LearnerNode:
    """Learns, serves the policy's parameters to other nodes, and saves checkpoints.

    It learns from the replay until the coordinator tells it to stop, or from recorded data until its budget is used.

    Args:
        experiment: the experiment that the program runs.
        spec: the environment's spec.
        replays: the replay's tables, one for each shard; empty for an experiment with `data`.
        coordinator: the coordinator's client.
        resumes: see `Coordinator`.
        token: the secret that nodes must send to get parameters.
        address: this node's Launchpad address; it serves parameters on its host.
        snapshot_every: steps of the budget between exports of the policy; None for no exports.
        skip_damaged: skips damaged parts of recorded data.
    """

    def __init__(
        self,
        experiment: Experiment,
        spec: EnvironmentSpec,
        replays: Sequence[Any],
        coordinator: Any,
        resumes: int | None = None,
        *,
        token: bytes,
        address: Any,
        snapshot_every: int | None = None,
        skip_damaged: bool = False,
    ):
        self._experiment, self._tables = experiment, list(replays)
        self._reporter = Reporter(coordinator, enter(coordinator, "learner"))
        self._coordinator = coordinator
        self._remote: RemoteReplay | None = None
        self._mixed: Mixed | None = None  # the batches, if there are demonstrations
        self._drawn: dict[str, Any] = {}  # samplers of recorded rows, by their names in a checkpoint
        self._stack = contextlib.ExitStack()
        agent = experiment.make_agent(spec)
        folder = check_recorded_data(experiment, agent, spec, skip_damaged=skip_damaged)
        rows = None if folder is None else read_rows(experiment, agent, folder, print)
        if experiment.data is None:
            batches = self._of_replay(agent, rows)
        else:
            assert rows is not None
            batches = data_batches(experiment, agent, rows)
            self._drawn = {"batches": batches}
        self._learner = agent.make_learner(
            batches, self._tables, experiment.key("learner"), devices=experiment.devices()
        )
        self._checkpoints = RunCheckpoints(RunDirectory.open(experiment.directory), experiment.checkpoints, print)
        self._pool = futures.ThreadPoolExecutor(1, "checkpoints")
        self._saving: futures.Future[None] | None = None  # the latest save, running or not yet checked
        restored = self._checkpoints.restore({"learner": agent.core.abstract_state()}, resumes)
        if restored is not None:
            self._learner.restore(restored.trees["learner"])
            self._learner.steps = Counts.of_state(restored.info["state"]).learner_steps
            for name, drawn in self._drawn.items():
                drawn.restore(restored.info["state"][name])
        self._snapshots = None if snapshot_every is None else self._make_snapshots(spec, agent, snapshot_every)
        host = address.resolve().rpartition(":")[0]
        self._variables = VariableServer(self._learner, lambda: self._learner.steps, token, host)

    def port(self) -> int:
        """Returns the port for requests of the policy's parameters; see `LearnerClient`."""
        return self._variables.port

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        """Returns parameters by name, as Acme's `VariableSource` does; every agent acts with `policy`."""
        return jax.device_get(self._learner.get_variables(names))

    def run(self) -> None:
        """Learns until it is told to stop, saves, and then serves parameters until the program ends."""
        with self._checkpoints.explaining():
            self._learn_and_save()
        self._reporter.report("has ended", now=True)
        self._reporter.done(learner_steps=self._learner.steps)
        lp.wait_for_stop()
        self._close()

    def _learn_and_save(self) -> None:
        logged = 0.0
        try:
            while not (self._is_over() or stops.ends(0)):
                self._learner.step()
                if time.monotonic() - logged > _LOG_EVERY_S:
                    self._log()
                    logged = time.monotonic()
                self._reporter.counts["learner_steps"] = self._learner.steps
                orders = self._reporter.report("learning")
                if orders.stop:
                    break
                self._keep()
        except StopWaitingError:
            pass
        except BaseException:
            self._close()
            raise
        if self._learner.calls:
            self._log()
        if self._saving is not None:
            self._saving.result()
        if self._snapshots is not None:  # the last one may have become due while this node waited for a batch
            self._snapshots.export_if_due(self._steps)
        self._save(last=True).result()

    @property
    def _steps(self) -> int:
        """Steps of the budget that were taken, as of this node's latest report."""
        return self._reporter.orders.environment_steps if self._experiment.data is None else self._learner.steps

    def _is_over(self) -> bool:
        """Whether a budget of learner steps is used up; always False for a budget of environment steps."""
        return self._experiment.data is not None and self._learner.steps >= self._experiment.steps

    def _of_replay(self, agent: Agent, demos: np.ndarray | None) -> Any:
        """Returns batches from the replay's shards, mixed with demonstrations if there are any."""
        self._remote = remote = RemoteReplay(self._tables)
        calls = agent.sgd_steps_per_call
        report = waiting(self._reporter, lambda: f"waiting for a batch: {remote.describe()}")

        def on_wait() -> None:
            report()
            self._keep()  # a batch may take hours

        datasets = Shards([table.batches(calls, on_wait=on_wait) for table in self._tables], calls)
        self._stack.callback(datasets.close)
        if demos is None:
            return datasets
        self._mixed = mixed_batches(self._experiment, agent, demos, datasets)
        self._drawn = {"demos": self._mixed}
        return self._mixed

    def _make_snapshots(self, spec: EnvironmentSpec, agent: Agent, every: int) -> Any:
        from acme_ext.launch.exporting.snapshots import Snapshots, check_policy

        check_policy(self._experiment, spec, agent)  # on Ray, nothing before has
        environment = self._experiment.make_environment(1, evaluation=True)
        actions = own_actions(environment)
        environment.close()

        def loaded() -> Loaded:
            statistics = self._coordinator.snapshot()["standing"]
            return Loaded(self._experiment, spec, agent, self._learner, statistics, self._steps, actions)

        rundir = RunDirectory.open(self._experiment.directory)
        return Snapshots(loaded, rundir, self._steps, every)

    def _log(self) -> None:
        of_replay = self._remote.counts() if self._remote is not None else {}
        self._reporter.counts |= {"learner_steps": self._learner.steps, **of_replay}
        drawn = {f"samples_{name}": count for name, count in (self._mixed.drawn if self._mixed else {}).items()}
        self._reporter.row("learner", {"learner_steps": self._learner.steps, **self._learner.metrics(), **drawn})

    def _keep(self) -> None:
        """Exports the policy and saves a checkpoint, if these are due."""
        if self._snapshots is not None:
            self._snapshots.export_if_due(self._steps)
        if self._saving is not None and self._saving.done():
            self._saving, saved = None, self._saving
            saved.result()
        if self._saving is None and self._checkpoints.due():
            self._saving = self._save()

    def _save(self, last: bool = False) -> futures.Future[None]:
        """Saves the current state in another thread; the replay's contents in it are slightly newer."""
        self._learner.check()
        state = self._coordinator.snapshot()
        counts = {**state["counts"], "learner_steps": self._learner.steps}
        state |= {"counts": counts, **{name: drawn.save() for name, drawn in self._drawn.items()}}
        contents = Contents({"learner": self._learner.save()}, state, self._remote)
        return self._pool.submit(self._checkpoints.save, counts[self._experiment.step_key], contents, last=last)

    def _close(self) -> None:
        self._variables.close()
        self._stack.close()
        self._learner.close()
