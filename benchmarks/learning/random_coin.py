"""Measures the return of the policy without a bonus, by the weight of the other policy's bonus. One network learns the
values of reward and bonus together (NGU), or two networks learn them separately (Agent57), as in Badia et al. 2020b,
section 3.1. `python -m benchmarks.learning.random_coin`.
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from acme_ext.acting.policy import Policy
from acme_ext.agents.agent57.acting import combined_values
from acme_ext.agents.agent57.config import Agent57Config
from acme_ext.agents.ngu import acting
from acme_ext.agents.ngu.networks import NGUNetworks
from acme_ext.builders.agent57 import Agent57
from benchmarks.learning import seeds
from benchmarks.learning.settings import Setting
from benchmarks.shared import command

BETAS = (0.01, 0.1)
AGENTS = {"one network": "ngu", "two networks": "benchmarks.learning.random_coin:Apart"}
"""How values are learned, and the agent for it."""


def make_policy(networks: NGUNetworks, config: Agent57Config, *, evaluation: bool) -> Policy:
    """Returns Agent57's policy with NGU's selection: random policies, and in evaluation the policy without a bonus."""
    choice = acting.exploiting() if evaluation else acting.uniform(config.num_arms)
    preferred = functools.partial(combined_values, rescaling_epsilon=config.rescaling_epsilon)
    return acting.policy_of(networks, config, choice, evaluation=evaluation, preferred=preferred)


@dataclasses.dataclass(frozen=True)
class Apart(Agent57):
    """Agent57 without its bandit; it only differs from NGU in having separate values for reward and bonus."""

    name = "apart"
    policy_of = staticmethod(make_policy)


def setting(agent: str, beta: float, steps: int) -> Setting:
    """Returns the setting of an agent of `AGENTS`, with the fields in `CONFIG`."""
    options: dict[str, Any] = {"size": SIZE, "max_steps": LIMIT}
    config = {**CONFIG, "beta": f"{beta:g}"}
    if agent == "two networks":  # it also has a middle discount
        config["middle_discount"] = config["discount"]
    return Setting(
        AGENTS[agent],
        "explore:random_coin",
        steps,
        8,
        eval_every=max(1, steps // 4),
        eval_episodes=100,
        config=config,
        environment_options=options,
    )


SIZE, LIMIT, STEPS = 5, 40, 32_000
CONFIG = {
    "num_arms": "2",
    "discount": "0.9",
    "least_discount": "0.9",
    "exploiting_share": "0",
    # The task needs no memory, and a small network can learn it.
    "core": "none",
    "image_features": "64",
    "embedding_steps": "2",
    "memory_rows": "64",
    "epsilon_steepness": "1",
    "replay.prioritized": "false",
    "replay.length": "12",
    "replay.period": "6",
    "replay.burn_in": "0",
    "replay.samples_per_insert": "24",
    "replay.min_size": "500",
}
"""The fields of the config that aren't the agents' defaults."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code, as `benchmarks.learning.seeds.run` does."""
    parser = seeds.parser("random_coin", __doc__, STEPS)
    parser.add_argument(
        "--betas", type=float, nargs="+", default=list(BETAS), metavar="X", help="weights of the bonus (0.01 0.1)"
    )
    options = parser.parse_args(arguments)
    return command.run("benchmarks.learning.random_coin", lambda: _main(options, command.line(parser, options)))


def _main(options: argparse.Namespace, line: str) -> int:
    settings = {
        f"{agent} | {beta:g}": setting(agent, beta, options.steps) for agent in AGENTS for beta in options.betas
    }
    changed = ", ".join(f"{name}={value}" for name, value in CONFIG.items())
    head = [
        f"`{line}`: the return of the policy without a bonus, on `explore:random_coin` of "
        f"{SIZE} times {SIZE} cells and {LIMIT} steps, after {options.steps:,} steps of training with 8 environments. "
        "There are two policies: one is given no bonus and the other beta times the bonus, and each plays half of the "
        "episodes. One network is NGU's; two are Agent57's, without the bandit. The return is the share of "
        "100 episodes, played greedily, in which the coin is found.",
        "",
        f"Both agents have {changed}.",
        "",
        "values | beta",
    ]
    return seeds.run(options, settings, "random-coin", head, draw)


def draw(found: seeds.Found, axes: Any) -> None:
    """Plots the returns by beta: the mean and the range over seeds."""
    for agent in AGENTS:
        of_agent = {float(key.split(" | ")[1]): of for key, of in found.items() if key.startswith(f"{agent} | ")}
        scores = np.array([[o.score for o in of_seeds] for of_seeds in of_agent.values()])
        betas = list(of_agent)
        axes.fill_between(betas, scores.min(axis=1), scores.max(axis=1), alpha=0.2, linewidth=0)
        axes.plot(betas, scores.mean(axis=1), marker="o", label=agent)
    axes.set(xscale="log", xlabel="beta", ylabel="return of the policy without a bonus", ylim=(-0.03, 1.03))


if __name__ == "__main__":
    sys.exit(main())
