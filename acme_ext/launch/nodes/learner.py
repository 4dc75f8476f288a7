"""The learner's node."""

import time
from collections.abc import Sequence
from typing import Any

import jax
import launchpad as lp

from acme_ext.acting.remote import Publisher
from acme_ext.launch import demonstrations
from acme_ext.launch.experiment import Experiment
from acme_ext.launch.nodes.replay import RemoteReplay
from acme_ext.launch.nodes.reports import Reporter, StopWaitingError, node_name, waiting
from acme_ext.launch.store import RunCheckpoints
from acme_ext.replay.shards import Shards
from acme_ext.types import EnvironmentSpec
from acme_ext.utils.rundir import RunDirectory

_LOG_EVERY_S = 1.0


class LearnerNode:
    """Learns from the replay for as long as the coordinator lets it, gives its parameters to whoever asks, and saves.

    Args:
        experiment: what is run.
        spec: of its environment.
        replays: Reverb clients, one for each shard.
        coordinator: its client.
    """

    def __init__(self, experiment: Experiment, spec: EnvironmentSpec, replays: Sequence[Any], coordinator: Any):
        self._experiment, self._clients = experiment, list(replays)
        self._reporter = Reporter(coordinator, node_name("learner", coordinator.enter("learner")))
        self._coordinator = coordinator
        agent = experiment.make_agent(spec)
        replay = agent.replay
        self._remote = RemoteReplay(self._clients, replay.table)
        part, calls = replay.split(len(self._clients)), agent.sgd_steps_per_call
        on_wait = waiting(self._reporter, lambda: f"waiting for a batch: {self._remote.describe()}")
        self._datasets = Shards([part.dataset(client, calls, on_wait=on_wait) for client in self._clients], calls)
        batches: Any = self._datasets
        demos = demonstrations.rows_of(experiment, agent, spec)
        self._mixed = None if demos is None else demonstrations.mixed(experiment, agent, demos, batches)
        self._learner = agent.make_learner(
            self._mixed or batches, self._clients, experiment.key("learner"), devices=experiment.devices()
        )
        self._checkpoints = RunCheckpoints(RunDirectory.open(experiment.directory), experiment.checkpoints, print)
        restored = self._checkpoints.restore({"learner": agent.core.abstract_state()})
        if restored is not None:
            self._learner.restore(restored.trees["learner"])
            self._learner.steps = restored.info["state"]["learner_steps"]
            if self._mixed is not None:
                self._mixed.restore(restored.info["state"]["demos"])
        self._publisher = Publisher(self._learner, lambda: self._learner.steps)

    def variables(self, held: int) -> tuple[int, bytes | None]:
        """Gives the policy's parameters; see `acting.remote.Fetch`."""
        return self._publisher.fetch(held)

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        """Gives parameters by name, as Acme's `VariableSource` does; `policy` is what every agent acts with."""
        return jax.device_get(self._learner.get_variables(names))

    def run(self) -> None:
        """Learns until it is told to stop, saves, and goes on giving parameters until the program ends."""
        with self._checkpoints.explaining():
            self._learn_and_save()
        self._reporter.report("has ended", now=True)
        self._reporter.done(learner_steps=self._learner.steps)
        lp.wait_for_stop()
        self._close()

    def _learn_and_save(self) -> None:
        logged = 0.0
        try:
            while not lp.wait_for_stop(0):
                self._learner.step()
                if time.monotonic() - logged > _LOG_EVERY_S:
                    self._log()
                    logged = time.monotonic()
                self._reporter.counts["learner_steps"] = self._learner.steps
                if self._reporter.report("learning").stop:
                    break
                if self._checkpoints.due():
                    self._save()
        except StopWaitingError:
            pass
        except BaseException:
            self._close()
            raise
        if self._learner.calls:
            self._log()
        self._save()

    def _log(self) -> None:
        self._reporter.counts |= {"learner_steps": self._learner.steps, **self._remote.counts()}
        drawn = {f"samples_{name}": count for name, count in (self._mixed.drawn if self._mixed else {}).items()}
        self._reporter.row("learner", {"learner_steps": self._learner.steps, **self._learner.metrics(), **drawn})

    def _save(self) -> None:
        self._learner.check()
        state = {**self._coordinator.snapshot(), "learner_steps": self._learner.steps}
        if self._mixed is not None:
            state["demos"] = self._mixed.save()
        steps = state["counts"]["environment_steps"]
        self._checkpoints.save(steps, {"learner": self._learner.save()}, state, self._remote)

    def _close(self) -> None:
        self._datasets.close()
        self._learner.close()
