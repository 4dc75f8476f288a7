import dataclasses

import acme.specs
import dm_env
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from acme_ext import envs, launch
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.acting.policy import Context
from acme_ext.acting.variables import VariableClient
from acme_ext.agents.apex.config import ApexConfig
from acme_ext.builders import DQN, ApexDQN
from acme_ext.launch.engines import in_process
from acme_ext.replay.config import TransitionConfig
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.types import Sample, Transition

ACTIONS = 3
SPEC = acme.specs.EnvironmentSpec(
    observations=specs.Array((ACTIONS,), np.float32),
    actions=specs.DiscreteArray(ACTIONS),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0, 1),
)


def as_observed(spec, config: ApexConfig, torso=None) -> hk.Transformed:
    """A network without parameters: the observation is the action values."""
    return hk.transform(lambda observation: observation)


class Values(dm_env.Environment):
    """Shows random action values; an episode ends after 2 to 7 steps, half of the time by a truncation."""

    def __init__(self, seed: int, evaluation: bool):
        self._rng = np.random.default_rng(seed)
        self._left = 0

    def reset(self) -> dm_env.TimeStep:
        self._left = int(self._rng.integers(2, 8))
        return dm_env.restart(self._observe())

    def step(self, action: int) -> dm_env.TimeStep:
        if not self._left:
            return self.reset()
        self._left -= 1
        reward = float(self._rng.normal())
        if self._left:
            return dm_env.transition(reward, self._observe())
        end = dm_env.termination if self._rng.random() < 0.5 else dm_env.truncation
        return end(reward, self._observe())

    def _observe(self) -> np.ndarray:
        return self._rng.normal(size=ACTIONS).astype(np.float32)

    def observation_spec(self) -> specs.Array:
        return SPEC.observations

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(ACTIONS)


class Learner:
    """What is left of a learner where nobody learns."""

    def __init__(self, builder: ApexDQN):
        core = builder.make_agent(SPEC).core
        self._variables = core.variables(core.init(jax.random.key(0)))

    def get_variables(self, names):
        return [self._variables[name] for name in names]


@pytest.mark.parametrize("burst", [1, 50])
def test_first_priorities_in_the_table_are_the_errors_of_the_actors_own_values(burst):
    config = ApexConfig(
        discount=0.9, replay=TransitionConfig(n_step=3, prioritized=True, priority_offset=0.01, write_burst=burst)
    )
    builder = ApexDQN(config, network=as_observed)
    replay = dataclasses.replace(builder.make_agent(SPEC).replay, limit=RateLimit())
    server = ReverbStore(replay)
    environment = envs.make(Values, num_envs=4)
    writer = replay.writer(server.table.sink(), 4)
    try:
        variables = VariableClient(Learner(builder))
        actor = builder.make_agent(SPEC).make_actor(variables, jax.random.key(1), num_envs=4, writer=writer)
        loop = EnvironmentLoop(environment, actor)
        taken = sum(loop.step() for _ in range(60))
        whole = writer.inserted
        writer.flush()
        writer.wait()
        assert writer.inserted == taken > whole
        found = {}
        for sample in server.client.sample(replay.table, 4_000, emit_timesteps=False):
            found[sample.info.key] = (np.asarray(sample.data[0]).ravel(), sample.info.priority)
        assert len(found) > 0.9 * taken
        rows, priority = zip(*found.values(), strict=True)
        batch = replay.decode(np.stack(rows))
        q_tm1, q_t = np.asarray(batch.observation), np.asarray(batch.next_observation)
        bootstrap = np.asarray(batch.discount) * q_t.max(axis=1)
        error = np.asarray(batch.reward) + bootstrap - q_tm1[np.arange(len(rows)), np.asarray(batch.action)]
        right = np.isclose(priority, np.abs(error) + 0.01, rtol=1e-4)
        # The flush came before the newest timesteps were acted on: up to 3 transitions of each environment end there,
        # and are bootstrapped from the step before. All others are right, those over an episode's end too.
        assert np.count_nonzero(~right) <= 3 * 4
        assert np.count_nonzero(batch.discount == 0) > 10  # terminations
        assert right[np.asarray(batch.discount) == 0].all()
        truncated = (batch.discount > 0) & ~np.isclose(batch.discount, 0.9**3)
        assert np.count_nonzero(truncated & right) > 10
    finally:
        writer.close()
        environment.close()
        server.close()


def test_the_ladder_spreads_over_the_environments_of_one_process():
    builder = ApexDQN(ApexConfig(epsilon_decay_steps=0), network=as_observed)
    actor = builder.make_agent(SPEC).make_actor(VariableClient(Learner(builder)), jax.random.key(1), num_envs=8)
    q = np.tile(np.float32([0, 1, 2]), (8, 1))
    zeros = np.zeros(8, np.float32)
    actor.observe_first(dm_env.TimeStep(np.full(8, dm_env.StepType.FIRST), zeros, zeros + 1, q))
    explored = np.mean([actor.select_action(q) != 2 for _ in range(2_000)], axis=0)
    np.testing.assert_allclose(explored, 0.4 ** np.linspace(1, 4, 8) * 2 / 3, atol=0.05)
    assert explored[-1] < 0.03


def test_evaluation_is_greedy_and_says_nothing_to_replay():
    builder = ApexDQN(network=as_observed)
    policy = builder.make_agent(SPEC).evaluation_policy
    (params,) = Learner(builder).get_variables(["policy"])
    q = jax.random.normal(jax.random.key(2), (1_000, ACTIONS))
    context = Context(jax.random.split(jax.random.key(1), 1_000), jnp.int32(0), jnp.zeros(1_000), jnp.zeros(1_000))
    action, _, extras = policy.apply(params, context, q, ())
    np.testing.assert_array_equal(action, jnp.argmax(q, axis=1))
    assert extras == ()


def test_the_replay_is_the_configs():
    replay = (
        ApexDQN(
            ApexConfig(replay=TransitionConfig(write_burst=50, max_size=2_000, priority_exponent=0.5, prioritized=True))
        )
        .make_agent(SPEC)
        .replay
    )
    assert (replay.burst, replay.max_size, replay.priority_exponent, replay.order) == (50, 2_000, 0.5, "prioritized")
    uniform = ApexDQN(ApexConfig(replay=TransitionConfig())).make_agent(SPEC).replay
    assert (uniform.order, uniform.priority) == ("uniform", None)


def test_the_learner_gives_the_errors_after_the_first():
    builder = ApexDQN(ApexConfig(hidden_sizes=(5,)))
    core = builder.make_agent(SPEC).core
    observation = np.random.default_rng(0).normal(size=(2, 6, ACTIONS)).astype(np.float32)
    data = Transition(observation[0], np.zeros(6, np.int32), np.ones(6), np.full(6, 0.9), observation[1])
    state, metrics, errors = jax.jit(core.step)(core.init(jax.random.key(0)), Sample(data, np.ones(6)))
    assert int(state.core.core.steps) == 1
    assert np.isfinite(metrics["loss"])
    assert errors.shape == (6,)
    assert np.all(errors >= 0)


@pytest.mark.release
@pytest.mark.usefixtures("no_figures")
def test_parameters_are_renewed_as_often_as_the_config_says(monkeypatch, tmp_path):
    assert DQN().make_agent(SPEC).variable_period == 1
    periods = []

    class Client(VariableClient):
        def __init__(self, source, period=1):
            periods.append(period)
            super().__init__(source, period)

    monkeypatch.setattr(in_process, "VariableClient", Client)
    builder = ApexDQN(
        ApexConfig(
            variable_period=7,
            replay=TransitionConfig(min_size=10, prioritized=True),
            hidden_sizes=(8,),
            sgd_steps_per_call=1,
        )
    )
    evaluation = launch.Evaluation(every=0, final_episodes=1)
    launch.run(
        launch.Experiment(builder, "bsuite:catch/0", steps=50, evaluation=evaluation, run_dir=str(tmp_path)), quiet=True
    )
    assert periods == [7]


@pytest.mark.release
@pytest.mark.usefixtures("no_figures")
def test_it_learns_catch(tmp_path):
    experiment = launch.Experiment(
        ApexDQN(),
        "bsuite:catch/0",
        steps=12_000,
        num_envs=8,
        evaluation=launch.Evaluation(every=0, final_episodes=50),
        run_dir=str(tmp_path / "run"),
    )
    result = launch.run(experiment, quiet=True)
    assert result.score is not None
    assert result.score.returns.mean() >= 0.9
