"""The agent that the README shows as one's own: it is as short as it claims to be, right, and it learns."""

import pathlib
import pickle

import jax
import jax.numpy as jnp
import my_agents
import numpy as np
import pytest
from acme import specs as acme_specs
from dm_env import specs

from acme_ext import launch
from acme_ext.errors import UsageError
from acme_ext.types import Sample, Transition

SPEC = acme_specs.EnvironmentSpec(
    observations=specs.Array((2,), np.float32),
    actions=specs.DiscreteArray(3),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0, 1),
)


def test_it_is_one_file_of_at_most_60_lines_outside_the_package():
    path = pathlib.Path(my_agents.__file__)
    assert "acme_ext" not in path.relative_to(pathlib.Path(__file__).parents[2]).parts
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


def test_td_error_by_hand():
    error = my_agents.td_error(
        q_tm1=jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [0.0, 0.0, 1.0]]),
        a_tm1=jnp.array([0, 2, 1]),
        r_t=jnp.array([1.0, -1.0, 0.5]),
        discount_t=jnp.array([0.5, 0.9, 0.0]),
        q_t=jnp.array([[3.0, 0.0, 0.0], [-1.0, -1.0, -4.0], [7.0, 8.0, 9.0]]),
        epsilon=0.3,
    )
    # The greedy action has probability 0.7 + 0.1, the other two 0.1 each.
    # 1 + 0.5 * (0.8 * 3 + 0 + 0) - 1 = 1.2
    # -1 + 0.9 * (0.7 * -1 + 0.1 * (-1 - 1 - 4)) - 6 = -8.17, where the two best share the greedy 0.7
    # 0.5 + 0 - 0 = 0.5: nothing is bootstrapped after a termination
    np.testing.assert_allclose(error, [1.2, -8.17, 0.5], rtol=1e-6)


def test_a_learner_step_by_hand():
    """The network's last layer is set so that its action values are known whatever is observed."""
    learning_rate = 0.125
    builder = my_agents.ExpectedSarsa(my_agents.Config(epsilon=0.3, learning_rate=learning_rate))
    core = builder.make_agent(SPEC).core
    state = core.init(jax.random.key(0))

    def with_values(params, values):
        *_, last = params
        return {**params, last: {"w": jnp.zeros_like(params[last]["w"]), "b": jnp.array(values)}}

    online, target = with_values(state.params, [1.0, 2.0, 4.0]), with_values(state.params, [3.0, 0.0, 0.0])
    batch = Transition(
        observation=jnp.ones((2, 2)),
        action=jnp.array([0, 1]),
        reward=jnp.array([1.0, 2.0]),
        discount=jnp.array([0.5, 0.0]),
        next_observation=jnp.ones((2, 2)),
    )
    state = state._replace(params=online, target_params=target)
    state, metrics, errors = core.step(state, Sample(batch, jnp.ones(2)))

    # Errors 1 + 0.5 * 0.8 * 3 - 1 = 1.2 and 2 - 2 = 0.
    assert metrics["loss"] == pytest.approx((1.2**2 + 0.0**2) / 2)
    assert metrics["q_mean"] == pytest.approx(7 / 3)
    np.testing.assert_allclose(errors, [1.2, 0.0], rtol=1e-5)
    *_, last = state.params
    # Adam's first step is the learning rate, towards the target of the one action value that was wrong.
    np.testing.assert_allclose(state.params[last]["b"], [1.0 + learning_rate, 2.0, 4.0], rtol=1e-5)
    np.testing.assert_array_equal(state.target_params[last]["b"], [3.0, 0.0, 0.0])


def test_its_builder_is_as_good_as_the_packages_own():
    builder = my_agents.ExpectedSarsa(my_agents.Config(epsilon=0.2))
    assert pickle.loads(pickle.dumps(builder)) == builder
    continuous = SPEC._replace(actions=specs.BoundedArray((1,), np.float32, -1, 1))
    with pytest.raises(UsageError, match="expected_sarsa needs an environment with one discrete action"):
        builder.make_agent(continuous).core.init(jax.random.key(0))


@pytest.mark.usefixtures("no_figures")
@pytest.mark.slow
def test_it_learns_catch(tmp_path):
    experiment = launch.Experiment(
        my_agents.ExpectedSarsa(),
        "bsuite:catch/0",
        steps=12_000,
        num_envs=4,
        evaluation=launch.Evaluation(every=0, final_episodes=50),
        run_dir=str(tmp_path / "run"),
    )
    result = launch.run(experiment, quiet=True)
    assert result.environment_steps == 12_000
    assert result.learner_steps == pytest.approx((12_000 - 1_000) / 4, rel=0.01)  # 16 samples an insert, 64 in a batch
    assert result.score is not None
    assert result.score.returns.mean() >= 0.9
