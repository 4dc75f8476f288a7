"""Stable-Baselines3: `sb3.py dqn|ppo|sac --num-envs N --seconds S`; see `benchmarks.speed.peers`."""

import argparse

import torch
from clock import Clock
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

WARM_UP = 1_500  # environment steps, of which an agent learns in the last 500


class Timer(BaseCallback):
    """Stops the training when the clock says so; looks at it between two rollouts, so that whole turns are counted."""

    def __init__(self, clock: Clock):
        super().__init__()
        self._clock, self._ended = clock, False

    def _on_rollout_start(self) -> None:
        self._ended = self._clock.ended(self.num_timesteps)

    def _on_step(self) -> bool:
        return not self._ended


def make(agent: str, num_envs: int):
    """Returns the model with acme_ext's settings of the same agent."""
    shared = {"device": "cpu", "seed": 0}
    if agent == "sac":  # one update with 256 transitions for every step, networks of 256x256: the defaults of both
        return SAC("MlpPolicy", make_vec_env("Pendulum-v1", num_envs), learning_starts=1_000, **shared)
    env = make_vec_env("CartPole-v1", num_envs)
    if agent == "ppo":
        kwargs = {"n_steps": 128, "batch_size": 64, "n_epochs": 10, "ent_coef": 0.01, "learning_rate": 3e-4}
        return PPO("MlpPolicy", env, policy_kwargs={"net_arch": [64, 64]}, **kwargs, **shared)
    # An update with 128 transitions for every 4 steps; the target takes 1% of the network each.
    every = {"train_freq": 4, "gradient_steps": 1} if num_envs < 4 else {"gradient_steps": num_envs // 4}
    return DQN(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        buffer_size=100_000,
        learning_starts=1_000,
        batch_size=128,
        tau=0.01,
        target_update_interval=4,
        policy_kwargs={"net_arch": [64, 64]},
        **{"train_freq": 1, **every},
        **shared,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agent", choices=["dqn", "ppo", "sac"])
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = Clock(WARM_UP, options.seconds)
    make(options.agent, options.num_envs).learn(10**9, callback=Timer(clock))
    print(clock.rate)


if __name__ == "__main__":
    main()
