"""Measures which policies Agent57's bandits select for acting and for evaluations, when the best policy changes over
time: `python -m benchmarks.learning.bandit_choices`.
"""

import argparse
import functools
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Context, PolicyMemory
from acme_ext.agents.agent57 import acting
from acme_ext.agents.agent57.config import Agent57Config
from acme_ext.agents.ngu.acting import Distances, Run
from acme_ext.ops import bandits
from acme_ext.types import Array
from acme_ext.utils import files, plots
from benchmarks.learning.result_pages import RESULTS
from benchmarks.shared import command, report

BEST = (6, 2, 0)
"""The best policy in each third of the episodes."""
HIGH, LOW = 0.9, 0.3
"""Probability of a return of 1 in an episode of the best policy, and in episodes of all others."""


class Played(NamedTuple):
    """The policies that were selected in every episode of B environments."""

    arm: Array  # [episodes, B]
    evaluated: Array  # [episodes] the policy that an evaluation would have used


def play(config: Agent57Config, best: np.ndarray, num_envs: int, seed: int | jax.Array) -> Played:
    """Plays one episode in each environment for every entry of `best` `[episodes]`, the index of the best policy.

    An episode has two timesteps; the return is the reward at the second one. Arms are selected with the same functions
    as in Agent57's actors and evaluations.
    """
    choice, evaluation = acting.by_bandit(config), acting.best_so_far(config.num_arms)
    zeros = jnp.zeros(num_envs)

    def context(key: jax.Array, reward: jax.Array, first: bool) -> Context:
        return Context(jax.random.split(key, num_envs), jnp.int32(0), zeros, reward, jnp.full(num_envs, first))

    def episode(memory: PolicyMemory, now: tuple[jax.Array, jax.Array]) -> tuple[PolicyMemory, tuple]:
        key, good = now
        start, luck, end = jax.random.split(key, 3)
        begins = context(start, zeros, True)
        arm, memory = choice.select(begins.key, begins, memory)
        known = acting.shared_statistics(Run(memory.run, Distances(zeros, zeros)), config.num_arms).choice
        known = bandits.Counts(*(x[None] for x in known))
        evaluated, _ = evaluation.select(begins.key[:1], begins, PolicyMemory(known))
        reward = (jax.random.uniform(luck, (num_envs,)) < jnp.where(arm == good, HIGH, LOW)).astype(jnp.float32)
        ends = context(end, reward, False)
        _, memory = choice.select(ends.key, ends, memory)
        return memory, (arm, evaluated[0])

    inputs = jax.random.split(jax.random.key(seed), len(best)), jnp.asarray(best)
    _, (arms, evaluated) = jax.lax.scan(episode, jax.tree.map(jnp.asarray, choice.init(num_envs)), inputs)
    return Played(arms, evaluated)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.bandit_choices", description=__doc__)
    parser.add_argument("--episodes", type=int, default=900, help="episodes in each environment (%(default)s)")
    parser.add_argument("--envs", type=int, default=8, help="environments, each with its own bandit (%(default)s)")
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds (%(default)s)")
    command.add(parser, out=RESULTS)
    options = parser.parse_args(arguments)
    return command.run("benchmarks.learning.bandit_choices", lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    command.check_least(options, "episodes", least=20 * len(BEST))  # of which 20 in a row are looked for in each part
    command.check_least(options, "envs", "seeds")
    files.make_writable_folder(options.out)  # fail early; the rest takes minutes
    config, best = Agent57Config(), parts(options.episodes)
    one = jax.jit(functools.partial(play, config, best, options.envs))
    found = [jax.device_get(one(seed)) for seed in range(options.seeds)]
    _draw(found, best, config, options.out / "bandit-choices.png")
    text = page(found, best, config)
    files.write_text(options.out / "bandit-choices.md", text)
    print(text)
    return 0


def parts(episodes: int) -> np.ndarray:
    """Returns the best policy of every episode `[episodes]`."""
    return np.concatenate([np.full(len(part), arm) for part, arm in zip(_split(episodes), BEST, strict=True)])


def _split(episodes: int) -> list[np.ndarray]:
    return np.array_split(np.arange(episodes), len(BEST))


def page(found: Sequence[Played], best: np.ndarray, config: Agent57Config) -> str:
    """Returns the page as Markdown."""
    episodes, num_envs = found[0].arm.shape
    most = 1 - config.bandit_epsilon + config.bandit_epsilon / config.num_arms
    lines = [
        "# Agent57's bandits where another policy becomes the best",
        "",
        f"`python -m benchmarks.learning.bandit_choices --episodes {episodes} --envs {num_envs} --seeds "
        f"{len(found)}`: the bandits of Agent57's actors and the choice of its evaluations, with the default config, "
        f"on a made-up task. An episode returns 1 with probability {HIGH:g} if the best of the {config.num_arms} "
        f"policies plays it, and with probability {LOW:g} otherwise, else 0. Each third of the episodes has another "
        "best policy. Only the bandits learn.",
        "",
        f"A bandit plays any policy in {config.bandit_epsilon:.0%} of the episodes and knows of the newest "
        f"{config.bandit_window}, so that it plays the best in {most:.0%} of the episodes at most. An evaluation takes "
        "the policy with the best mean over all environments.",
        "",
        f"| episodes | best policy | share that plays it, mean of {len(found)} seeds | least seed "
        f"| share of evaluations that take it | least seed | episodes until all of 20 evaluations in a row take it, "
        "mean | greatest |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for part in _split(episodes):
        arm, late = best[part[0]], part[len(part) // 2 :]
        played = np.array([(p.arm[late] == arm).mean() for p in found])
        evaluated = np.array([(p.evaluated[late] == arm).mean() for p in found])
        delays = np.array([delay(p.evaluated[part] == arm) for p in found])
        cells = [f"{x:.0%}" for x in (played.mean(), played.min(), evaluated.mean(), evaluated.min())]
        cells += [f"{delays.mean():.0f}", f"{delays.max():.0f}"]
        lines.append(f"| {part[0]:,} to {part[-1] + 1:,} | {arm} | {' | '.join(cells)} |")
    lines += ["", "Shares are of the second half of each third.", "", "![Policies by episode](bandit-choices.png)", ""]
    lines.append(", ".join(f"{name} {value}" for name, value in report.machine(after=True).items()) + ".")
    return "\n".join(lines) + "\n"


def delay(right: np.ndarray, row: int = 20) -> int:
    """Returns the index of the first of `row` consecutive true entries; the length of `right` if there are none."""
    runs = np.convolve(right.astype(np.int64), np.ones(row, np.int64), "valid") == row
    return int(runs.argmax()) if runs.any() else len(right)


def _draw(found: Sequence[Played], best: np.ndarray, config: Agent57Config, path: pathlib.Path) -> None:
    figure = plots.new_figure(8, 4.4, dpi=120)
    above, below = figure.subplots(2, 1, sharex=True)
    arms = np.stack([p.arm for p in found])  # [seeds, episodes, B]
    kernel = np.ones(15) / 15
    middle = np.arange(len(best) - len(kernel) + 1) + len(kernel) // 2
    for arm in range(config.num_arms):
        share = np.convolve((arms == arm).mean(axis=(0, 2)), kernel, "valid")
        colour, label = (f"C{BEST.index(arm)}", f"policy {arm}") if arm in BEST else ("0.8", None)
        above.plot(middle, share, color=colour, label=label)
    above.set(ylabel="share of episodes", title=f"what is played, mean of {len(found)} seeds, over 15 episodes")
    above.legend(fontsize="small")
    below.step(np.arange(len(best)), best, where="post", color="0.6", linewidth=4, label="best")
    below.plot(found[0].evaluated, color="C3", linewidth=1, label="evaluation's")
    below.set(xlabel="episodes of each environment", ylabel="policy", title="what an evaluation takes, seed 0")
    below.legend(fontsize="small")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    plots.save(figure, path)


if __name__ == "__main__":
    raise SystemExit(main())
