"""Mistakes in an agent's own parts are named before anything runs."""

import dataclasses

import haiku as hk
import jax.numpy as jnp
import my_agents
import numpy as np
import optax
import pytest

from acme_ext import launch, specs
from acme_ext.acting.policy import Policy
from acme_ext.builders import DQN, PPO, R2D2, SAC, TD3, Rainbow
from acme_ext.config.agent import AgentConfig
from acme_ext.errors import UsageError
from acme_ext.launch import Experiment
from acme_ext.launch.runs import validation
from acme_ext.launch.runs.validation import check_agent
from acme_ext.learning.core import LossOutput, single_loss_core
from acme_ext.networks import continuous, recurrent
from acme_ext.ops.gaussian import SquashedGaussian
from acme_ext.replay import TransitionConfig

CATCH, PENDULUM = "bsuite:catch/0", "gym:Pendulum-v1"


def _check(builder, environment):
    experiment = Experiment(builder, environment)
    check_agent(experiment, experiment.make_spec())


@dataclasses.dataclass(frozen=True)
class Own(my_agents.ExpectedSarsa):
    name = "own"


def _with_loss(outputs):
    """Returns an agent whose loss returns `outputs(error [B])`."""

    @dataclasses.dataclass(frozen=True)
    class WithLoss(Own):
        def make_core(self, spec, networks):
            def loss(params, target_params, batch, weight, key):
                q = networks.apply(params, key, batch.observation)
                return outputs(batch.reward - q[jnp.arange(len(batch.action)), batch.action])

            zeros = specs.zeros(spec.observations, 1)
            return single_loss_core(loss, lambda key: networks.init(key, zeros), optax.adam(1e-3))

    return WithLoss


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            lambda e: (e.mean(), LossOutput({"e": e})),
            r"metric 'e' of WithLoss is float32\[64\]: metrics are scalars",
        ),
        (lambda e: (e.mean(), LossOutput({"e": "x"})), "the metric 'e' of WithLoss is str: metrics are scalars"),
        (
            lambda e: (e.mean(), LossOutput({"learner_steps": 1.0})),
            "'learner_steps': the log has a column of this name",
        ),
        (lambda e: (e.mean(), LossOutput({"a,b": 1.0})), "named 'a,b': a column's name has no comma"),
        (lambda e: (e.mean(), LossOutput({}, e.mean())), r"returns errors float32\[\]: they must be \[B\]"),
    ],
)
def test_a_loss_that_returns_something_else(outputs, message):
    with pytest.raises(UsageError, match=message):
        _check(_with_loss(outputs)(), CATCH)


def test_a_prioritized_replay_needs_errors():
    builder = _with_loss(lambda e: (e.mean(), LossOutput({})))
    _check(builder(), CATCH)
    with pytest.raises(UsageError, match="gives no TD errors for priorities"):
        _check(builder(my_agents.Config(replay=TransitionConfig(prioritized=True))), CATCH)


def _zeros(context, dtype=jnp.int32):
    return jnp.zeros(context.key.shape[0], dtype)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            Policy(lambda p, c, o, s: (_zeros(c, jnp.float32), s, ())),
            r"actions float32\[7\] for 7 .*whole numbers",
        ),
        (Policy(lambda p, c, o, s: (jnp.int32(0), s, ())), r"returns actions int32\[\] for 7 environments"),
        (
            Policy(lambda p, c, o, s: (_zeros(c), s)),
            r"\(int32\[7\], \(\)\): it must return \(action, state",
        ),
        (lambda p, c, o, s: (_zeros(c), s, ()), r"make_policy makes <function.*it must make a Policy"),
        (
            Policy(lambda p, c, o, s: (_zeros(c), s[:1], ()), lambda batch: np.zeros((batch, 3), np.float32)),
            r"state of WithPolicy's policy changes in a step: it is float32\[7, 3\] before and float32\[1, 3\] after",
        ),
        (
            Policy(lambda p, c, o, s: (_zeros(c), {"x": s}, ()), lambda batch: np.zeros(batch, np.float32)),
            "changes its structure in a step",
        ),
        (
            Policy(lambda p, c, o, s: (_zeros(c), s, ()), lambda batch: np.zeros(3, np.float32)),
            r"init_state of WithPolicy's policy makes float32\[3\] for 7 environments",
        ),
    ],
)
def test_a_policy_that_returns_something_else(policy, message):
    @dataclasses.dataclass(frozen=True)
    class WithPolicy(Own):
        def make_policy(self, spec, networks, *, evaluation=False):
            return policy

    with pytest.raises(UsageError, match=message):
        _check(WithPolicy(), CATCH)


def test_a_core_that_is_none():
    @dataclasses.dataclass(frozen=True)
    class WithoutCore(Own):
        def make_core(self, spec, networks):
            return None

    with pytest.raises(UsageError, match=r"WithoutCore.make_core makes None: it must make a LearnerCore"):
        _check(WithoutCore(), CATCH)


def test_a_config_or_a_class_that_lacks_something():
    @dataclasses.dataclass(frozen=True)
    class Config(AgentConfig):
        replay: TransitionConfig = TransitionConfig()
        batch_size: int = 8
        epsilon: float = 0.1
        learning_rate: float = 1e-3

    class Nameless(my_agents.Builder):
        make_networks = make_policy = make_core = lambda *arguments: None

    @dataclasses.dataclass(frozen=True)
    class Undiscounted(Own):
        config: Config = Config()

    with pytest.raises(UsageError, match="Config has no field 'discount', which Undiscounted needs"):
        Undiscounted()
    with pytest.raises(UsageError, match="Nameless has no name: give the class one, as in `name = 'nameless'`"):
        Nameless(Config())


def _q_network(*sizes):
    return launch.named("mine", lambda spec, config, torso: hk.transform(lambda o: _mlp(sizes)(hk.Flatten()(o))))


def _mlp(sizes):
    return lambda x: hk.nets.MLP(sizes[:1])(x).reshape(len(x), *sizes)


def _recurrent(size):
    def make(spec, config, torso, core):
        flat, head = lambda x: hk.Flatten()(x), lambda x: hk.Linear(size)(x)
        return recurrent.recurrent_network(spec, flat, recurrent.gru(4), head)

    return launch.named("mine", make)


def _gaussian(observation):
    return SquashedGaussian(hk.Linear(1)(observation), jnp.exp(hk.Linear(1)(observation)))


def _q_of(observation, action):
    return hk.nets.MLP((4, 1))(jnp.concatenate([observation, action], -1))[:, 0]


def _pair(policy, critic):
    made = continuous.Networks(1, hk.transform(policy), hk.transform(critic))
    return launch.named("mine", lambda spec, config, torso: made)


@pytest.mark.parametrize(
    ("builder", "environment", "message"),
    [
        (DQN(network=_q_network(2)), CATCH, r"mine, whose output is float32\[7, 2\] .*DQN needs float32\[7, 3\]"),
        (DQN(network=_q_network(3, 1)), CATCH, r"output is float32\[7, 3, 1\]"),
        (Rainbow(network=_q_network(3)), CATCH, r"float32\[7, 3\] for 7 observations: Rainbow needs Prediction"),
        (R2D2(network=_recurrent(4)), CATCH, r"output is float32\[7, 4\] .*R2D2 needs float32\[7, 3\]"),
        (PPO(network=_recurrent(3)), CATCH, r"PPO needs Output"),
        (
            SAC(network=_pair(_gaussian, lambda o, a: _q_of(o, a)[:, None])),
            PENDULUM,
            r"network is mine, whose critic is float32\[7, 1\] for 7 observations: SAC needs float32\[7\]",
        ),
        (
            SAC(network=_pair(lambda o: hk.Linear(1)(o), _q_of)),
            PENDULUM,
            r"policy is float32\[7, 1\] .*SAC needs SquashedGaussian",
        ),
        (TD3(network=_pair(_gaussian, _q_of)), PENDULUM, r"policy is SquashedGaussian .*TD3 needs float32\[7, 1\]"),
    ],
)
def test_a_network_with_another_output(builder, environment, message):
    with pytest.raises(UsageError, match=message):
        _check(builder, environment)


@pytest.mark.parametrize(
    ("builder", "environment"),
    [
        (DQN(network=_q_network(3)), CATCH),
        (R2D2(network=_recurrent(3)), CATCH),
        (SAC(network=_pair(_gaussian, _q_of)), PENDULUM),
    ],
)
def test_a_network_with_the_right_output(builder, environment):
    _check(builder, environment)


def test_the_packages_own_agents_are_not_checked_again(monkeypatch):
    monkeypatch.setattr(validation, "_check_policy", lambda *arguments: pytest.fail("checked"))
    _check(DQN(), CATCH)
    with pytest.raises(pytest.fail.Exception):
        _check(Own(), CATCH)
