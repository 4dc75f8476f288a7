"""Measures how much of a maze agents visit when their only reward is the bonus: NGU, NGU with a random embedding, and
RND. The maze's walls change colour (Badia et al. 2020a, section 4.1). `python -m benchmarks.learning.disco_maze`.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.learning import seeds
from benchmarks.learning.settings import Setting
from benchmarks.shared import command

SIZE, LIMIT, STEPS, NUM_ENVS = 7, 40, 200_000, 16
# Short sequences and a short horizon, for few learner steps. Observations within `cluster_distance` average distances
# count as known, so that changed colours alone are no novelty.
_NGU = {
    "num_arms": "1",
    "beta": "0.5",
    "discount": "0.9",
    "least_discount": "0.9",
    "memory_rows": "64",
    "neighbours": "1",
    "cluster_distance": "2",
    "kernel_epsilon": "0.1",
    "image_features": "64",
    "replay.length": "20",
    "replay.period": "20",
    "replay.burn_in": "0",
    "replay.samples_per_insert": "48",
}
ARMS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "NGU": ("ngu", _NGU),
    "NGU, embedding stays random": ("ngu", {**_NGU, "embedding_learning_rate": "0"}),
    "RND": ("rnd", {}),
}
"""The arms of the comparison: an agent, and the fields of its config that aren't its defaults."""


def setting(arm: str, steps: int) -> Setting:
    """Returns the setting of an arm of `ARMS`."""
    agent, config = ARMS[arm]
    return Setting(
        agent,
        "explore:disco_maze",
        steps,
        NUM_ENVS,
        eval_every=max(1, steps // 10),
        eval_episodes=100,
        config=config,
        environment_options={"size": SIZE, "max_steps": LIMIT},
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code, as `benchmarks.learning.seeds.run` does."""
    parser = seeds.parser("disco_maze", __doc__, STEPS)
    options = parser.parse_args(arguments)
    return command.run("benchmarks.learning.disco_maze", lambda: _main(options, command.line(parser, options)))


def _main(options: argparse.Namespace, line: str) -> int:
    settings = {arm: setting(arm, options.steps) for arm in ARMS}
    changed = ", ".join(f"{name}={value}" for name, value in _NGU.items())
    head = [
        f"`{line}`: the share of a maze's cells that an episode visits, the mean of 100 greedy "
        f"episodes after {options.steps:,} steps of training with {NUM_ENVS} environments, on `explore:disco_maze` of "
        f"{SIZE} times {SIZE} cells, the walls counted, and {LIMIT} steps an episode, in which all cells can be "
        "visited. Training has no reward but the bonus. Each episode has another maze.",
        "",
        f"NGU has one policy, and {changed}; RND has its defaults.",
        "",
        "agent",
    ]
    return seeds.run(options, settings, "disco-maze", head, draw)


def draw(found: seeds.Found, axes: Any) -> None:
    """Plots the shares by steps: the mean over seeds, and the range from minimum to maximum."""
    for arm, of_seeds in found.items():
        steps = of_seeds[0].evaluations["environment_steps"]
        shares = np.array([o.evaluations["episode_return_mean"] for o in of_seeds])
        axes.fill_between(steps, shares.min(axis=0), shares.max(axis=0), alpha=0.2, linewidth=0)
        axes.plot(steps, shares.mean(axis=0), marker=".", label=arm)
    axes.set(xlabel="environment steps", ylabel="share of the cells visited", ylim=(-0.03, 1.03))


if __name__ == "__main__":
    sys.exit(main())
