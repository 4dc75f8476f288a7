"""The examples beside the README's agent: each as short as it claims to be, and learning what it is there for."""

import dataclasses
import pathlib

import jax
import my_agents
import my_envs
import my_gym
import my_networks
import numpy as np
import pytest
import recurrent_dqn
import rnd
import spec_of

from acme_ext import launch
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.builders import DQN, R2D2
from acme_ext.errors import UsageError
from acme_ext.replay import SequenceConfig, TransitionConfig
from acme_ext.types import Sample

pytestmark = pytest.mark.usefixtures("no_figures")
EXAMPLES = pathlib.Path(my_agents.__file__).parent


def code_lines(name: str) -> int:
    """The lines of a file that aren't empty, from its first class on: what its author had to think of."""
    source = (EXAMPLES / name).read_text(encoding="utf-8")
    return sum(bool(line.strip()) for line in source[source.index("@dataclasses") :].splitlines())


@pytest.mark.parametrize(("name", "most"), [("recurrent_dqn.py", 30), ("rnd.py", 50)])
def test_a_new_agent_is_short(name, most):
    assert code_lines(name) <= most


def experiment(builder, environment, steps, tmp_path, **options):
    score = launch.Evaluation(every=0, final_episodes=30)
    return launch.Experiment(
        builder, environment, steps=steps, num_envs=4, evaluation=score, run_dir=str(tmp_path / "run"), **options
    )


def test_the_maze_is_a_sound_environment():
    maze = my_envs.make_maze(0, False, size=5)
    timestep = maze.reset()
    assert timestep.observation.sum() == 1
    assert timestep.observation.shape == (25,)
    right, down, _, up = range(4)
    way = [down] * 4 + [right] * 2 + [up] * 4 + [right] * 2 + [down] * 4
    timesteps = [maze.step(action) for action in way]
    assert [timestep.reward for timestep in timesteps] == [0.0] * 15 + [1.0]
    assert timesteps[-1].last()
    assert timesteps[-1].discount == 0.0
    late = my_envs.make_maze(0, False, size=5)
    late.reset()
    for _ in range(40):
        timestep = late.step(up)
    assert timestep.last()
    assert timestep.discount == 1.0


@pytest.mark.release
def test_recurrent_dqn_remembers(tmp_path):
    builder = recurrent_dqn.RecurrentDQN()
    result = launch.run(experiment(builder, "bsuite:memory_len/2", 20_000, tmp_path), quiet=True)
    assert result.score.returns.mean() >= 0.9  # a guess is worth 0


@pytest.mark.slow
def test_an_agent_of_ones_own_in_an_environment_of_ones_own(tmp_path):
    builder = my_agents.ExpectedSarsa()
    result = launch.run(experiment(builder, "py:my_envs:make_maze", 12_000, tmp_path), quiet=True)
    assert result.score.returns.mean() >= 0.9


@pytest.mark.release
def test_rnd_gives_less_bonus_for_what_it_has_seen(tmp_path):
    """The bonus of the same batch falls as the predictor learns it, and PPO is given the sum."""
    builder = rnd.RND()
    agent = builder.make_agent(spec_of.discrete(4, (16,)))
    state = agent.core.init(jax.random.key(0))
    data = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), agent.replay.example(8))
    observation = np.random.default_rng(0).normal(size=data.observation.shape).astype(np.float32)
    sample = Sample(data._replace(observation=observation), np.ones(8, np.float32))
    step, bonuses = jax.jit(agent.core.step), []
    for _ in range(100):
        state, metrics, _ = step(state, sample)
        bonuses.append(float(metrics["bonus"]))
    assert bonuses[-1] < 0.5 * max(bonuses[:10])


@pytest.mark.release
def test_a_torso_a_core_and_a_network_of_ones_own(tmp_path):
    torso, core = my_networks.make_torso, my_networks.make_core
    dqn = dataclasses.replace(
        DQN(), torso=torso, config=DQNConfig(replay=TransitionConfig(max_size=1_000, min_size=100), batch_size=16)
    )
    with pytest.raises(UsageError, match=r"a convolution must be given"):  # a grid without channels
        launch.run(experiment(dqn, "bsuite:catch/0", 600, tmp_path / "misfit"), quiet=True)
    assert launch.run(experiment(dqn, "minatar:breakout", 600, tmp_path / "torso"), quiet=True).learner_steps > 0
    whole = dataclasses.replace(dqn, torso=None, network=my_networks.make_network)
    assert launch.run(experiment(whole, "gym:CartPole-v1", 600, tmp_path / "whole"), quiet=True).learner_steps > 0
    replay = SequenceConfig(max_size=200, min_size=20)
    r2d2 = R2D2(core=core)
    r2d2 = dataclasses.replace(r2d2, config=dataclasses.replace(r2d2.config, replay=replay, batch_size=4))
    assert launch.run(experiment(r2d2, "bsuite:memory_len/2", 1_000, tmp_path / "core"), quiet=True).learner_steps > 0


def test_the_corridor_takes_legal_actions_alone():

    environment = my_gym.make(length=3, cost=0.5)
    observation, _ = environment.reset(seed=0)
    np.testing.assert_array_equal(observation["action_mask"], [0, 1])
    with pytest.raises(AssertionError, match="not legal"):
        environment.step(0)
    rewards = [environment.step(1)[1:3] for _ in range(2)]
    assert rewards == [(-0.5, False), (0.5, True)]


@pytest.mark.release
def test_an_environment_of_gymnasium_of_ones_own(tmp_path):
    options = {"environment_options": {"length": 6}}
    result = launch.run(experiment(DQN(), "gym:my_gym:Corridor-v0", 4_000, tmp_path, **options), quiet=True)
    assert result.score.returns.mean() == pytest.approx(1 - 5 * 0.01)
