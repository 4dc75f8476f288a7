"""Exports the policy during a run."""

from collections.abc import Callable

import jax

from acme_ext.builders.base import Agent
from acme_ext.launch.exporting.export import export, trace_run
from acme_ext.launch.runs.evaluation import FixedVariables, Loaded
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.trained import Run
from acme_ext.types import EnvironmentSpec
from acme_ext.utils.rundir import RunDirectory


def check_policy(experiment: Experiment, spec: EnvironmentSpec, agent: Agent) -> None:
    """Raises UsageError if the evaluation policy has an operation that can't be exported; the message names it."""
    core = agent.core
    variables = core.variables(jax.jit(core.init)(experiment.key("learner")))
    loaded = Loaded(experiment, spec, agent, FixedVariables(variables), None, 0, spec.actions)
    trace_run(Run(experiment.directory, loaded))


class Snapshots:
    """Exports the evaluation policy to `snapshots/STEP` in the run directory, as `acme-ext export` does.

    Whether the policy can be exported is checked beforehand, see `check_policy`.

    Args:
        loaded: a function that returns the current agent.
        rundir: the run directory.
        steps: steps that the run has taken.
        every: steps between two snapshots.
    """

    def __init__(self, loaded: Callable[[], Loaded], rundir: RunDirectory, steps: int, every: int):
        self._loaded, self._rundir, self._every = loaded, rundir, every
        self.next = (steps // every + 1) * every
        """The step at which the next snapshot is due."""

    def export_if_due(self, steps: int) -> None:
        """Writes a snapshot if one is due."""
        if steps >= self.next:
            self.next = (steps // self._every + 1) * self._every
            export(Run(self._rundir.path, self._loaded()), self._rundir.path / "snapshots" / f"{steps:09d}")
