"""What holds of every agent with discrete actions: one that isn't legal is never taken, and never in a target."""

import dataclasses

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from acme_ext import builders, envs, launch
from acme_ext.acting import stochastic
from acme_ext.acting.exploration import epsilon_greedy
from acme_ext.acting.policy import Context
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.agents.r2d2 import losses as r2d2
from acme_ext.errors import UsageError
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.schedule import Evaluation
from acme_ext.networks import torsos
from acme_ext.ops import masking
from acme_ext.ops.policy import Categorical
from acme_ext.replay.config import TransitionConfig
from acme_ext.types import Sample

ACTIONS = 5
QUICK = ("dqn", "ppo")  # one that learns values, and one that learns a policy
AGENTS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.release)
    for name in ("dqn", "rainbow", "apex", "bdqn", "r2d2", "ppo", "a2c", "impala")
]


class Masked(dm_env.Environment):
    """Allows two actions of five, others at each step, and raises at every other one."""

    def __init__(self, seed, evaluation):
        del evaluation
        self._rng, self._length = np.random.default_rng(seed), 0

    def _observe(self):
        self._mask = np.zeros(ACTIONS, np.bool_)
        self._mask[self._rng.choice(ACTIONS, 2, replace=False)] = True
        return {"seen": self._rng.normal(size=3).astype(np.float32), "action_mask": self._mask}

    def reset(self):
        self._length = 0
        return dm_env.restart(self._observe())

    def step(self, action):
        assert self._mask[action], f"action {action} is not legal"
        self._length += 1
        if self._length == 6:
            return dm_env.termination(1.0, self._observe())
        return dm_env.transition(0.0, self._observe())

    def observation_spec(self):
        return {"seen": specs.Array((3,), np.float32), "action_mask": specs.BoundedArray((ACTIONS,), bool, 0, 1)}

    def action_spec(self):
        return specs.DiscreteArray(ACTIONS)


@pytest.mark.release
def test_an_agent_learns_in_an_environment_with_a_mask(tmp_path, no_figures):
    """The environment raises at an action that isn't legal."""
    config = DQNConfig(replay=TransitionConfig(min_size=50))
    evaluation = Evaluation(every=0, final_episodes=2)
    experiment = Experiment(
        builders.DQN(config), Masked, 200, num_envs=2, evaluation=evaluation, run_dir=tmp_path / "r"
    )
    assert launch.run(experiment, quiet=True).learner_steps > 0


SPEC = envs.make_spec(Masked(0, False))


def agent_of(name):
    return builders.make(name).make_agent(SPEC)


def observation_of(rng, *shape):
    mask = np.argsort(rng.random((*shape, ACTIONS)), axis=-1) < 2
    return {"seen": rng.normal(size=(*shape, 3)).astype(np.float32), "action_mask": mask}


@pytest.mark.parametrize(
    "name", [*AGENTS, *(pytest.param(name, marks=pytest.mark.release) for name in ("discrete_sac", "bcq", "bc"))]
)
def test_an_illegal_action_is_never_taken(name):
    agent, count, rng = agent_of(name), 200, np.random.default_rng(0)
    params = agent.core.variables(agent.core.init(jax.random.key(0)))["policy"]
    for policy in (agent.policy, agent.evaluation_policy):
        for steps in (0, 10**6):  # at first, where all is random, and at last
            observation = observation_of(rng, count)
            context = Context(
                jax.random.split(jax.random.key(steps), count),
                jnp.int32(steps),
                jnp.linspace(0, 1, count),
                jnp.zeros(count),
                jnp.ones(count, bool),
                policy.init_policy_memory(count),
            )
            action, _, extras = jax.jit(policy.apply)(params, context, observation, policy.init_state(count))
            assert np.take_along_axis(observation["action_mask"], np.asarray(action)[:, None], 1).all()
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(extras))


def with_illegal_values(builder, value):
    """The builder whose network says so much more of every action that isn't legal."""

    def raised(output, observation):
        more = value * (1 - jnp.asarray(observation["action_mask"], jnp.float32))
        if hasattr(output, "policy"):
            return output._replace(policy=Categorical(output.policy.logits + more))
        if hasattr(output, "q"):  # which chooses the next action
            logits = {"logits": output.logits + more} if output._fields == ("q", "logits") else {}  # BCQ's
            return output._replace(q=output.q + more, **logits)
        return output + (more[:, None] if output.ndim > more.ndim else more)  # of several heads

    def make(*arguments):
        network = builder.network(*arguments)
        if hasattr(network, "network"):

            def unroll(params, key, inputs, state):
                output, state = network.network.apply(params, key, inputs, state)
                return raised(output, inputs.observation), state

            return dataclasses.replace(network, network=network.network._replace(apply=unroll))
        function = network.apply if hasattr(network, "discrete") else network  # BC's, or another's
        function = function._replace(
            apply=lambda params, key, observation, f=function: raised(f.apply(params, key, observation), observation)
        )
        return network._replace(apply=function) if hasattr(network, "discrete") else function

    return builder.replace(network=make)


@pytest.mark.parametrize(
    "name", [*AGENTS, *(pytest.param(name, marks=pytest.mark.release) for name in ("bcq", "bc", "discrete_cql"))]
)
def test_what_is_learned_does_not_depend_on_what_is_said_of_illegal_actions(name):
    rng, learned = np.random.default_rng(1), []
    agent = agent_of(name)
    size = agent.replay.batch_size
    example = agent.replay.example(size)
    fields = example._asdict()
    data = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), example)
    seen = {field: observation_of(rng, *fields[field]["seen"].shape[:-1]) for field in fields if "observation" in field}
    data = data._replace(**seen, discount=np.ones_like(data.discount), extras=jax.tree.map(np.ones_like, data.extras))
    data = data._replace(action=np.argmax(data.observation["action_mask"], -1)[: len(data.action)].astype(np.int32))
    if "mask" in fields:
        data = data._replace(mask=np.ones_like(data.mask))
    for value in (0.0, 1_000.0):
        builder = builders.make(name)
        if name == "bcq":  # without the loss of all logits
            builder = builder.replace(config=dataclasses.replace(builder.config, logits_coef=0.0))
        core = with_illegal_values(builder, value).make_agent(SPEC).core
        _, metrics, _ = jax.jit(core.step)(core.init(jax.random.key(0)), Sample(data, np.ones(size, np.float32)))
        learned.append((metrics["loss"], metrics["gradient_norm"]))
    np.testing.assert_allclose(*learned, rtol=1e-4)


def test_random_actions_are_uniform_among_the_legal_ones():
    count = 6_000
    legal = jnp.broadcast_to(jnp.array([False, True, True, False, True]), (count, ACTIONS))
    q = jnp.broadcast_to(jnp.array([9.0, 1.0, 2.0, 8.0, -1.0]), (count, ACTIONS))
    keys = jax.random.split(jax.random.key(0), count)
    shares = np.bincount(epsilon_greedy(keys, q, jnp.float32(1), legal), minlength=ACTIONS) / count
    np.testing.assert_allclose(shares, [0, 1 / 3, 1 / 3, 0, 1 / 3], atol=0.03)
    assert (epsilon_greedy(keys, q, jnp.float32(0), legal) == 2).all()


def test_r2d2_bootstraps_from_the_best_legal_action():
    q = jnp.zeros((3, 1, 3)).at[:, :, 0].set(100.0).at[:, :, 2].set(1.0)
    q_target = jnp.array([50.0, 7.0, 3.0]) * jnp.ones((3, 1, 3))
    legal = jnp.array([False, True, True]) * jnp.ones((3, 1, 3), bool)
    ones = jnp.ones((2, 1))
    error = r2d2.td_error(q, jnp.full((2, 1), 2), 0 * ones, ones, q_target, ones, 1, None, legal)
    np.testing.assert_allclose(error, 3.0 - 1.0)


def test_policies_are_those_of_the_legal_actions_alone():
    observation = {"seen": jnp.zeros((1, 3)), "action_mask": jnp.array([[0, 1, 1, 0, 0]])}
    chosen = stochastic.among_legal(Categorical(jnp.array([[5.0, 0.0, np.log(3.0), 5.0, 5.0]])), observation)
    np.testing.assert_allclose(np.exp(chosen.log_prob(jnp.array([2]))), 0.75, rtol=1e-5)
    entropy, gradient = jax.value_and_grad(
        lambda logits: stochastic.among_legal(Categorical(logits), observation).entropy()[0]
    )(jnp.zeros((1, ACTIONS)))
    np.testing.assert_allclose(entropy, np.log(2), rtol=1e-5)
    np.testing.assert_array_equal(gradient, 0)
    nothing = {**observation, "action_mask": jnp.zeros((1, ACTIONS), int)}  # as padding is
    assert np.isfinite(stochastic.among_legal(Categorical(jnp.ones((1, ACTIONS))), nothing).entropy())


def test_networks_see_neither_mask_nor_player():
    image = np.ones((2, 10, 10, 3), np.float32)
    observation = {"picture": image, "action_mask": np.ones((2, 4), bool), "player": np.zeros(2, np.int32)}
    assert masking.visible(observation) is image
    assert torsos.is_image(observation)
    assert torsos.flatten_observation(observation).shape == (2, 300)
    assert masking.visible({"player": image}) == {"player": image}  # of some other meaning, without a mask


@pytest.mark.parametrize(("shape", "dtype"), [((ACTIONS + 1,), bool), ((ACTIONS,), np.float32)])
def test_a_mask_that_is_none_is_refused(shape, dtype):
    class Wrong(Masked):
        def observation_spec(self):
            return {**super().observation_spec(), "action_mask": specs.Array(shape, dtype)}

    with pytest.raises(UsageError, match="mask of legal actions"):
        builders.make("dqn").make_agent(envs.make_spec(Wrong(0, False)))
