"""Run directories as runs leave them, with random parameters: nothing is trained."""

import jax

from acme_ext.launch import Evaluation, Experiment
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.utils.rundir import RunDirectory


def save(path, builder, environment, steps=100, **options):
    """Makes the run directory of an agent that has learned nothing."""
    experiment = Experiment(
        builder, environment, seed=3, evaluation=Evaluation(final_episodes=4), environment_options=options
    )
    rundir = RunDirectory(path)
    rundir.write_config(experiment.describe())
    core = experiment.builder.make_agent(experiment.make_spec()).core
    CheckpointStore(rundir.checkpoints).save(steps, {"learner": core.init(jax.random.key(5))}, {"state": {}})
    return rundir.path
