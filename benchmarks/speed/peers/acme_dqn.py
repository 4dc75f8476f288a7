"""Acme 0.4.0's DQN in TensorFlow, one environment: `acme_dqn.py --seconds S`; see `benchmarks.speed.peers`."""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import acme
import acme.specs
import dm_env
import gymnasium
import numpy as np
import sonnet as snt
from acme.agents.tf import dqn
from acme.utils import loggers
from clock import Clock
from dm_env import specs

WARM_UP = 1_500  # environment steps


class CartPole(dm_env.Environment):
    """Gymnasium's."""

    def __init__(self):
        self._env = gymnasium.make("CartPole-v1")
        self._ended = True

    def reset(self):
        self._ended = False
        return dm_env.restart(self._env.reset()[0])

    def step(self, action):
        if self._ended:
            return self.reset()
        observation, reward, terminated, truncated, _ = self._env.step(int(action))
        self._ended = terminated or truncated
        reward = np.float32(reward)
        if terminated:
            return dm_env.TimeStep(dm_env.StepType.LAST, reward, np.float32(0), observation)
        if truncated:
            return dm_env.truncation(reward, observation, np.float32(1))
        return dm_env.transition(reward, observation, np.float32(1))

    def observation_spec(self):
        return specs.Array((4,), np.float32)

    def action_spec(self):
        return specs.DiscreteArray(2, np.int32)

    def reward_spec(self):
        return specs.Array((), np.float32)

    def discount_spec(self):
        return specs.BoundedArray((), np.float32, 0.0, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    clock = Clock(WARM_UP, parser.parse_args().seconds)
    environment = CartPole()
    agent = dqn.DQN(
        acme.specs.make_environment_spec(environment),
        snt.Sequential([snt.Flatten(), snt.nets.MLP([64, 64, 2])]),
        batch_size=128,
        samples_per_insert=32.0,  # an update for every 4 steps
        min_replay_size=1_000,
        max_replay_size=100_000,
        n_step=1,
        checkpoint=False,
        logger=loggers.NoOpLogger(),
    )
    loop = acme.EnvironmentLoop(environment, agent, logger=loggers.NoOpLogger())
    steps = 0
    while not clock.ended(steps):
        steps += loop.run_episode()["episode_length"]
    print(clock.rate, flush=True)
    os._exit(0)  # its replay server would wait for its readers


if __name__ == "__main__":
    main()
