"""What holds of every agent that the command line knows: it runs in both worlds and goes on where it stopped."""

import contextlib
import dataclasses

import dm_env
import jax
import numpy as np
import pytest

from acme_ext import builders, envs, launch
from acme_ext.agents.muzero.config import RootsConfig
from acme_ext.errors import UsageError
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.schedule import Evaluation
from acme_ext.ops.search import SearchConfig
from acme_ext.replay.config import SequenceConfig, TransitionConfig, UnrollConfig

pytestmark = pytest.mark.usefixtures("no_figures")

# Small enough for a run to learn within a few hundred steps; an agent takes those that are fields of its config.
SMALL = {
    "batch_size": 8,
    "hidden_sizes": (16, 16),
    "policy_sizes": (16, 16),
    "critic_sizes": (16, 16),
    "random_steps": 20,
    "sgd_steps_per_call": 2,
    "num_samples": 4,
    "state_size": 16,
    "search": SearchConfig(simulations=2),
}
REPLAYS = {
    TransitionConfig: {"min_size": 40, "max_size": 400, "write_burst": 1, "samples_per_insert": 8.0},
    SequenceConfig: {
        "min_size": 4,
        "max_size": 40,
        "burn_in": 2,
        "length": 6,
        "period": 3,
        "samples_per_insert": 2.0,
    },
    UnrollConfig: {"length": 8},
    RootsConfig: {"min_size": 4, "max_size": 40, "length": 9, "samples_per_insert": 2.0},
}

QUICK = ("dqn", "ppo")  # one with a table, one with a queue
OFFLINE = {"bc", "td3_bc", "iql", "cql", "crr", "discrete_cql", "bcq"}  # see tests/launch/test_offline.py
TAUGHT = {"r2d3", "dqfd", "sqil", "discrete_sqil"}  # see tests/launch/test_demos.py
# A few agents are enough before a release.
KINDS = {"impala", "mpo"}
PROGRAMS = {"apex", "r2d2", "impala"}


def agents(slow, quick=QUICK):
    """The agents that learn from what they do: but for those in `quick` marked slow, or release where not in `slow`."""
    names = [name for name in builders.AGENTS if name not in OFFLINE | TAUGHT]
    marks = {name: () if name in quick else pytest.mark.slow if name in slow else pytest.mark.release for name in names}
    return [pytest.param(name, marks=marks[name]) for name in names]


def spec_of(environment: str, **options):
    with contextlib.closing(envs.canonical_actions(envs.make(environment, **options))) as made:
        return envs.make_spec(made)


def experiment(name: str, tmp_path, steps: int) -> Experiment:
    """A small experiment in an environment that the agent can act in."""
    for environment in ("gym:CartPole-v1", "gym:Pendulum-v1", "board:tic_tac_toe"):
        builder = small(builders.load(name)())
        spec = spec_of(environment, **builder.preset_for(environment).environment.get("board", {}))
        try:
            builder.make_agent(spec)
        except UsageError:
            continue
        return Experiment(
            builder,
            environment,
            steps=steps,
            num_envs=2,
            evaluation=Evaluation(every=0, final_episodes=1),
            run_dir=str(tmp_path / "run"),
        )
    raise AssertionError(f"{name} can act in none of them")


def small(builder):
    config = builder.config
    fields = {field.name for field in dataclasses.fields(config)}
    kind = type(config.replay)
    wanted = {**SMALL, "replay": dataclasses.replace(config.replay, **REPLAYS[kind])}
    if kind is not TransitionConfig:  # an item is a sequence, so that there are fewer
        wanted["batch_size"] = 2
    return dataclasses.replace(
        builder, config=dataclasses.replace(config, **{k: v for k, v in wanted.items() if k in fields})
    )


@pytest.mark.parametrize("name", agents(slow=KINDS))
def test_learns_saves_and_goes_on_in_one_process(name, tmp_path):
    first = launch.run(experiment(name, tmp_path, 300), quiet=True)
    assert first.learner_steps > 0
    second = launch.run(experiment(name, tmp_path, 500), quiet=True)
    assert second.environment_steps >= 500
    assert second.learner_steps > first.learner_steps
    assert np.isfinite(second.score.returns).all()


@pytest.mark.parametrize("name", agents(slow=PROGRAMS, quick=("dqn",)))
def test_runs_as_a_program(name, tmp_path):
    result = launch.run(experiment(name, tmp_path, 400), launch.Threads(actors=2), quiet=True)
    assert result.environment_steps >= 400
    assert result.learner_steps > 0
    assert np.isfinite(result.score.returns).all()


def row_bytes(replay) -> int:
    return replay.nbytes


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in (*QUICK, "r2d2", "sac") else pytest.mark.release)
        for name in builders.AGENTS
    ],
)
def test_a_step_keeps_the_shape_of_the_state(name, tmp_path):
    described = experiment(name, tmp_path, 1)
    spec = described.make_spec()
    if hasattr(spec.observations, "shape"):  # with a field of size 0, as some of dm_control's tasks have
        empty = dm_env.specs.Array((0,), np.float32)
        spec = spec._replace(observations={"empty": empty, "rest": spec.observations})
    agent = described.builder.make_agent(spec)
    replay, core = agent.replay, agent.core

    def step(state, rows):
        from acme_ext.types import Sample

        return core.step(state, Sample(replay.decode(rows), np.ones(replay.batch_size, np.float32)))

    rows = np.zeros((replay.batch_size, row_bytes(replay)), np.uint8)
    before = core.abstract_state()
    after, metrics, errors = jax.eval_shape(step, before, rows)
    # What a step returns is what the next is given and what a checkpoint restores.
    assert jax.tree.structure(after) == jax.tree.structure(before)
    jax.tree.map(
        lambda new, old: np.testing.assert_equal((new.shape, new.dtype), (old.shape, old.dtype)), after, before
    )
    assert {"loss", "gradient_norm"} <= set(metrics)
    assert all(metric.shape == () for metric in metrics.values())
    assert (errors is not None) == (not replay.fifo)
    if errors is not None:
        assert errors.shape == (replay.batch_size,)
