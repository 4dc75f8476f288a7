"""Measures which policies Agent57's bandits select while the agent learns, when the best policy changes over time:
`python -m benchmarks.learning.bandit_choices_trained`.
"""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from acme_ext import launch
from acme_ext.agents.agent57 import acting
from acme_ext.builders.agent57 import Agent57
from acme_ext.config.assignments import configure_builder
from acme_ext.envs.functional import FunctionalEnvironment, FunctionalState, Moved
from acme_ext.launch.engines.compiled.engine import keys_of
from acme_ext.launch.engines.compiled.loops import Loop
from acme_ext.types import Array, Tree
from acme_ext.utils import compiling, files, plots
from benchmarks.learning.result_pages import RESULTS
from benchmarks.shared import command, report

SIZE, LIMIT = 6, 20
"""Side length of the room in cells, and number of steps of an episode."""
PARTS = 3
"""Number of parts of the training; the rewarded behaviour changes from each part to the next."""
_MOVES = np.array(((-1, 0), (0, 1), (1, 0), (0, -1)), np.int32)

CONFIG = {
    "num_arms": "4",
    "beta": "0.3",
    "exploiting_share": "0",
    "image_features": "64",
    "memory_rows": "32",
    "neighbours": "3",
    "replay.length": "20",
    "replay.period": "20",
    "replay.burn_in": "0",
    "replay.max_size": "1000",
}
"""The fields of Agent57's config that aren't its defaults."""


class _Standing(NamedTuple):
    place: Array  # [2] int32 row and column
    visited: Array  # [SIZE, SIZE] bool
    time: Array  # [] int32 steps in this episode
    age: Array  # [] int32 steps in all episodes


@dataclasses.dataclass(frozen=True)
class Fashion(FunctionalEnvironment):
    """An empty room with episodes of `LIMIT` steps, in which the rewarded behaviour changes over time.

    The only reward is at the last step. It is the fraction of the episode's steps that lead to a cell for the first
    time in the episode. In every second part of the environment's lifetime, it is the fraction of all other steps
    instead. The observation has the agent's position and its starting position.

    Args:
        part: number of steps of a part.
    """

    part: int

    def begin(self, key: Array) -> tuple[Tree, Tree]:
        place = jax.random.randint(key, (2,), 0, SIZE)
        visited = jnp.zeros((SIZE, SIZE), bool).at[tuple(place)].set(True)
        return self._seen(_Standing(place, visited, jnp.int32(0), jnp.int32(0)), place)

    def move(self, key: Array, state: Tree, action: Array) -> Moved:
        del key
        (place, visited, time, age), start = state
        place = jnp.clip(place + jnp.array(_MOVES)[action], 0, SIZE - 1)
        visited, time = visited.at[tuple(place)].set(True), time + 1
        share = (visited.sum() - 1) / LIMIT
        late = time >= LIMIT
        reward = jnp.where(age // self.part % 2 == 0, share, 1 - share) * late
        after, observation = self._seen(_Standing(place, visited, time, age + 1), start)
        return Moved(after, observation, reward, jnp.bool_(False), late)

    def step(self, state: FunctionalState, action: Array) -> tuple[FunctionalState, dm_env.TimeStep]:
        """Takes a step; the age is not reset at the beginning of an episode."""
        after, timestep = super().step(state, action)
        (standing, start), (before, _) = after.inner, state.inner
        standing = standing._replace(age=jnp.maximum(standing.age, before.age))
        return after._replace(inner=(standing, start)), timestep

    @staticmethod
    def _seen(standing: _Standing, start: Array) -> tuple[Tree, Array]:
        both = jnp.stack([standing.place, start])
        observation = jnp.zeros((SIZE, SIZE, 2), jnp.float32).at[both[:, 0], both[:, 1], jnp.arange(2)].set(1)
        return (standing, start), observation

    def observation_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((SIZE, SIZE, 2), np.float32, 0, 1, "observation")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(len(_MOVES), np.int32, "action")


class Played(NamedTuple):
    """The selected policies and the returns of the episodes of B environments."""

    arm: np.ndarray  # [episodes, B]
    returned: np.ndarray  # [episodes, B]
    evaluated: np.ndarray  # [episodes] the policy that an evaluation would have used


def train(environment: FunctionalEnvironment, episodes: int, num_envs: int, seed: int) -> Played:
    """Trains Agent57 for a number of episodes in each environment, which all have `LIMIT` steps."""
    builder: Any = configure_builder(Agent57(), CONFIG)
    experiment = launch.Experiment(
        builder, lambda *_: environment, steps=episodes * LIMIT * num_envs, seed=seed, num_envs=num_envs
    )
    agent = dataclasses.replace(experiment.make_agent(experiment.make_spec()), sgd_steps_per_call=1)
    loop = Loop(agent, environment, num_envs, "Agent57")

    @compiling.jit
    def episode(world: Any, ticks: Array) -> tuple[Any, tuple]:
        world, _ = loop.advance(world, jnp.int32(2**30), ticks)
        run, of_episode = world.place.carry
        counts = acting.shared_statistics(run, builder.config.num_arms).choice
        mean = jnp.where(counts.plays > 0, counts.total / jnp.maximum(counts.plays, 1), -jnp.inf)
        return world, (of_episode.arm, world.place.returns, jnp.argmax(mean))

    world, found = compiling.jit(loop.init)(*keys_of(experiment)), []
    for number in range(episodes):
        world, played = episode(world, jnp.int32(LIMIT + (number > 0)))  # later episodes begin with a reset step
        found.append(jax.device_get(played))
    if int(world.learning.bad_step) >= 0:
        raise FloatingPointError("a loss is not finite.")
    return Played(*(np.stack(x) for x in zip(*found, strict=True)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.bandit_choices_trained", description=__doc__)
    parser.add_argument("--episodes", type=int, default=450, help="episodes in each environment (%(default)s)")
    parser.add_argument("--envs", type=int, default=8, help="environments, each with its own bandit (%(default)s)")
    command.add(parser, seeds=[0, 1, 2], out=RESULTS)
    options = parser.parse_args(arguments)
    return command.run("benchmarks.learning.bandit_choices_trained", lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    command.check_seeds(options.seeds)
    command.check_least(options, "episodes", least=2 * PARTS)  # an episode in each half of each part
    command.check_least(options, "envs")
    files.make_writable_folder(options.out)  # fail early; the rest takes minutes
    environment = Fashion(-(-options.episodes // PARTS) * LIMIT)
    found = {}
    for seed in options.seeds:
        found[seed] = train(environment, options.episodes, options.envs, seed)
        print(f"seed {seed}: {'; '.join(' '.join(map(str, row)) for row in _rows(found[seed]))}", flush=True)
    _draw(list(found.values()), options.out / "bandit-choices-trained.png")
    text = page(found, options)
    files.write_text(options.out / "bandit-choices-trained.md", text)
    print(text)
    return 0


def late(episodes: int) -> list[np.ndarray]:
    """Returns the indices of the episodes in the second half of each part."""
    size = -(-episodes // PARTS)
    parts = [np.arange(start, min(start + size, episodes)) for start in range(0, episodes, size)]
    return [part[len(part) // 2 :] for part in parts]


def _rows(played: Played) -> list[tuple]:
    """Returns a row for each part, from its second half: each arm's mean return, its fraction of the training episodes,
    and its fraction of the evaluations.
    """
    arms, rows = range(int(CONFIG["num_arms"])), []
    for part in late(len(played.arm)):
        arm, returned = played.arm[part], played.returned[part]
        means = [float(returned[arm == a].mean()) if (arm == a).any() else float("nan") for a in arms]
        shares = [float((arm == a).mean()) for a in arms]
        taken = [float((played.evaluated[part] == a).mean()) for a in arms]
        rows.append((np.round(means, 2), np.round(shares, 2), np.round(taken, 2)))
    return rows


def page(found: dict[int, Played], options: argparse.Namespace) -> str:
    """Returns the page as Markdown."""
    changed = ", ".join(f"{name}={value}" for name, value in CONFIG.items())
    size = -(-options.episodes // PARTS)
    lines = [
        "# Agent57's bandits in a training in which another policy becomes the best",
        "",
        f"`python -m benchmarks.learning.bandit_choices_trained --episodes {options.episodes} --envs {options.envs} "
        f"--seeds {' '.join(map(str, found))}`: Agent57 is trained on {options.envs} environments, empty rooms of "
        f"{SIZE} times {SIZE} cells, in episodes of {LIMIT} steps. In the first {size} episodes of each and in the "
        "last, the return is the share of steps that lead to a cell that is new in the episode; in those between, it "
        "is the share of steps that don't. Policies with a larger number are given more of the bonus, and policy 0 "
        f"none. Nothing but the reward says which part it is. The config: {changed}.",
        "",
        "| seed | part | best policy | mean return of each policy | share of episodes that each plays | most played "
        "| share of evaluations that take the best |",
        "|--:|--:|--:|---|---|--:|--:|",
    ]
    for seed, played in found.items():
        for number, (means, shares, taken) in enumerate(_rows(played)):
            best = int(np.nanargmax(means))
            cells = (
                best,
                ", ".join(f"{x:.2f}" for x in means),
                ", ".join(f"{x:.0%}" for x in shares),
                int(np.argmax(shares)),
                f"{taken[best]:.0%}",
            )
            lines.append(f"| {seed} | {number + 1} | {' | '.join(map(str, cells))} |")
    lines += ["", "All figures are of the second half of each part.", ""]
    lines += ["![Policies by episode](bandit-choices-trained.png)", ""]
    lines.append(", ".join(f"{name} {value}" for name, value in report.machine(after=True).items()) + ".")
    return "\n".join(lines) + "\n"


def _draw(found: Sequence[Played], path: pathlib.Path) -> None:
    figure = plots.new_figure(8, 4.4, dpi=120)
    above, below = figure.subplots(2, 1, sharex=True)
    arms, returned = (np.concatenate([getattr(p, name) for p in found], axis=1) for name in ("arm", "returned"))
    episodes = len(arms)
    kernel = np.ones(min(15, episodes))
    middle = np.arange(episodes - len(kernel) + 1) + len(kernel) // 2
    for arm in range(int(CONFIG["num_arms"])):
        plays = np.convolve((arms == arm).sum(axis=1), kernel, "valid")
        total = np.convolve(np.where(arms == arm, returned, 0).sum(axis=1), kernel, "valid")
        above.plot(middle, total / np.maximum(plays, 1), color=f"C{arm}", label=f"policy {arm}")
        below.plot(middle, plays / (len(kernel) * arms.shape[1]), color=f"C{arm}")
    above.set(ylabel="mean return", title=f"{len(found)} seeds together, over {len(kernel)} episodes")
    above.legend(fontsize="small")
    below.set(xlabel="episodes of each environment", ylabel="share of episodes")
    for axes in (above, below):
        axes.grid(alpha=0.3)
        for part in range(1, PARTS):
            axes.axvline(part * -(-episodes // PARTS), color="0.5", linewidth=1)
    plots.save(figure, path)


if __name__ == "__main__":
    sys.exit(main())
