"""SARSA and Q-learning on the cliff (Sutton and Barto 2018, example 6.6), with a table instead of a network.

`python tabular.py` trains both and plots the returns of their episodes in `cliff.png`.
"""

import argparse
import dataclasses
import pathlib
import sys

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

from acme_ext import launch, specs
from acme_ext.acting.exploration import epsilon_greedy
from acme_ext.acting.policy import Policy
from acme_ext.builders import Builder
from acme_ext.config import AgentConfig
from acme_ext.learning.core import LossOutput, single_loss_core
from acme_ext.replay import SequenceReplay, UnrollConfig
from acme_ext.utils import loggers


@dataclasses.dataclass(frozen=True)
class Config(AgentConfig):
    epsilon: float = 0.1  # probability of a random action
    learning_rate: float = 0.5  # the step size alpha
    discount: float = 1.0
    batch_size: int = 1
    replay: UnrollConfig = UnrollConfig(length=1, max_size=1)  # online learning: each step is used once


def sampled_next(q_t, epsilon, key):
    """Returns SARSA's next value `[B]`, for a next action sampled from the policy."""
    action = epsilon_greedy(jax.random.split(key, len(q_t)), q_t, epsilon)
    return q_t[jnp.arange(len(q_t)), action]


def best_next(q_t, epsilon, key):
    """Returns Q-learning's next value `[B]`, the maximum over actions."""
    del epsilon, key
    return q_t.max(axis=-1)


@dataclasses.dataclass(frozen=True)
class Sarsa(Builder):
    name = "sarsa"
    next_value = staticmethod(sampled_next)

    config: Config = Config()

    def make_networks(self, spec):
        shape = (*spec.observations.shape, specs.num_actions(spec, self.name))

        def q(state):  # the state is one-hot, so this is a row of the table
            return state.astype(jnp.float32) @ hk.get_parameter("q", shape, init=jnp.zeros)

        return hk.without_apply_rng(hk.transform(q))

    def make_replay(self, spec, networks):
        c = self.config
        return SequenceReplay.of(spec, c.replay, batch_size=c.batch_size, discount=c.discount, extras=())

    def make_policy(self, spec, networks, *, evaluation=False):
        epsilon = 0.0 if evaluation else self.config.epsilon

        def apply(params, context, observation, state):
            return epsilon_greedy(context.key, networks.apply(params, observation), epsilon), state, ()

        return Policy(apply)

    def make_core(self, spec, networks):
        def loss(params, target_params, batch, weight, key):
            del weight
            q_tm1 = networks.apply(params, batch.observation[0])
            q_t = networks.apply(target_params, batch.observation[1])
            target = batch.reward[1] + batch.discount[0] * self.next_value(q_t, self.config.epsilon, key)
            error = batch.mask[0] * (target - q_tm1[jnp.arange(len(q_tm1)), batch.action[0]])
            # The gradient of half the squared error updates an entry of the table by alpha times the error.
            return jnp.mean(0.5 * error**2), LossOutput({"q_mean": q_tm1.mean()})

        example = specs.zeros(spec.observations, 1)
        return single_loss_core(loss, lambda key: networks.init(key, example), optax.sgd(self.config.learning_rate))


@dataclasses.dataclass(frozen=True)
class QLearning(Sarsa):
    name = "q_learning"
    next_value = staticmethod(best_next)


def train(builder, seed, folder, steps=15_000):
    """Trains an agent; returns the result of the run."""
    experiment = launch.Experiment(
        builder,
        "gym:CliffWalking-v1",
        steps=steps,
        environment_options={"max_episode_steps": 1_000},
        seed=seed,
        evaluation=launch.Evaluation(every=0, final_episodes=1),  # greedy and deterministic
        run_dir=f"{folder}/{builder.name}-{seed}",
    )
    result = launch.run(experiment, quiet=True)
    if result.stopped_by is not None:  # Ctrl-C or SIGTERM; the run is saved, and the same command resumes it
        sys.exit(128 + result.stopped_by)
    return result


def online_returns(results, episodes=500):
    """Returns the returns of the first training episodes, with exploration, as means over runs."""
    logs = [loggers.read_csv(result.run_dir / "logs" / "actor.csv")["episode_return"] for result in results]
    episodes = min(episodes, *map(len, logs))
    return np.mean([log[:episodes] for log in logs], axis=0)


def draw(results, out, window=20):
    """Plots the returns during learning, smoothed over episodes, as in the textbook's figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for name, color in (("sarsa", "#0072b2"), ("q_learning", "#d55e00")):
        returns = online_returns(results[name])
        smooth = np.convolve(returns, np.ones(window) / window, mode="valid")
        greedy = np.median([result.score.returns.mean() for result in results[name]])
        label = f"{name.replace('_', '-')}: the greedy path at the end is worth {greedy:.0f}"
        axes.plot(np.arange(window, len(returns) + 1), smooth, color=color, label=label)
    axes.set(xlabel="episode", ylabel="return of an episode", ylim=(-100, 0))
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(out, dpi=100)
    return out


def main(folder="runs/cliff", seeds=10):
    builders = (Sarsa(), QLearning())
    results = {each.name: [train(each, seed, folder) for seed in range(seeds)] for each in builders}
    for name, runs in results.items():
        greedy = sorted(run.score.returns.mean() for run in runs)
        print(f"{name:10} the last 100 episodes {online_returns(runs)[-100:].mean():.1f}, greedy {greedy}")
    print(draw(results, pathlib.Path(folder) / "cliff.png"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Trains Sarsa and Q-learning on the cliff walk.")
    parser.add_argument("folder", nargs="?", default="runs/cliff", help="folder for the runs (%(default)s)")
    parser.add_argument("seeds", nargs="?", type=int, default=10, help="number of seeds of each (%(default)s)")
    main(**vars(parser.parse_args()))
