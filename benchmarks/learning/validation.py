"""Tests the agents' defaults on environments they were not chosen for: `python -m benchmarks.learning.validation`."""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from acme_ext import envs
from acme_ext.errors import UsageError, nearest
from acme_ext.types import LAST
from acme_ext.utils import files
from benchmarks.learning import outcomes
from benchmarks.learning import run as learning
from benchmarks.learning.outcomes import Outcome
from benchmarks.learning.settings import Setting
from benchmarks.shared import command


@dataclasses.dataclass(frozen=True)
class Suite:
    """A set of agents that are compared with each other."""

    agents: tuple[str, ...]
    environments: Mapping[str, int]  # name -> environment steps
    num_envs: int


SUITES = {
    # Defaults were chosen on gym:CartPole-v1, bsuite:catch/0, bsuite:memory_len/10 and minatar:breakout.
    "discrete": Suite(
        ("dqn", "rainbow", "apex", "r2d2", "discrete_sac", "impala", "ppo", "a2c"),
        {
            "gym:Acrobot-v1": 50_000,  # a reward of -1 for each of up to 500 steps
            "gym:MountainCar-v0": 50_000,  # the same for up to 200 steps; the goal has to be found
            # Dense rewards and a large one at the end; hovering until the time limit is a way to lose less.
            "envpool:LunarLander-v2": 200_000,
            "bsuite:cartpole_swingup/0": 50_000,  # up to 1,000 steps; moving has a cost, and the reward is far away
            "bsuite:deep_sea/0": 50_000,  # one rewarded path among 2**10
            "bsuite:discounting_chain/0": 20_000,  # returns of 1; one of five actions is better by a tenth
            "bsuite:umbrella_length/10": 20_000,  # a choice at the start decides the return at the end
            "bsuite:catch_scale/0": 20_000,  # returns of 0.001
            "bsuite:catch_scale/16": 20_000,  # returns of 1,000
            "minatar:freeway": 100_000,  # images, episodes of 2,500 steps, sparse rewards
            "minatar:space_invaders": 100_000,  # images, dense rewards
        },
        8,
    ),
    # Defaults were chosen on gym:Pendulum-v1 and other tasks of the control suite.
    "continuous": Suite(
        ("sac", "td3", "d4pg", "apex_dpg", "mpo", "dmpo", "ppo"),
        {
            "gym:MountainCarContinuous-v0": 30_000,  # a cost for each action, and a goal that has to be found
            "dmc:cartpole/balance": 30_000,  # dense
            "dmc:cartpole/balance_sparse": 30_000,
            "dmc:ball_in_cup/catch": 30_000,  # sparse
            "dmc:reacher/easy": 30_000,
            "dmc:finger/spin": 30_000,
        },
        4,
    ),
}
"""The suites, by name."""

TRIED = {
    "envpool:LunarLander-v2": ("dqn", "impala", "a2c"),
    "gym:Acrobot-v1": ("impala", "a2c", "r2d2"),
    "bsuite:catch_scale/0": ("impala",),
    "minatar:freeway": ("ppo",),
    "dmc:ball_in_cup/catch": ("td3",),
    "dmc:reacher/easy": ("td3",),
    "dmc:finger/spin": ("td3",),
}
"""The agents, by environment, of which a default or a preset was tried there too."""
BAR = 0.5
"""The bar for every agent, as a fraction of the way from the random policy's return to the best agent's."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code: 0, 2 for a usage error, or the exit code of a failed run."""
    options = _parser().parse_args(arguments)
    return command.run("benchmarks.learning.validation", lambda: _main(options))


def settings(name: str) -> dict[tuple[str, str], Setting]:
    """Returns the settings of a suite by environment and agent."""
    suite = SUITES[name]
    return {
        (environment, agent): Setting(
            agent, environment, steps, suite.num_envs, eval_every=steps // 5, eval_episodes=_episodes(environment)
        )
        for environment, steps in suite.environments.items()
        for agent in suite.agents
    }


def _episodes(environment: str) -> int:
    """Returns the number of episodes of an evaluation: fewer if they are long, many if their returns are random."""
    if environment.startswith("bsuite:umbrella_length"):
        return 500  # nine rewards of 1 or -1 at random have a standard deviation of 3; the choice is worth 1 or -1
    return 10 if environment.startswith(("minatar:", "dmc:")) else 20


def random_return(environment: str, *, episodes: int = 100, steps: int = 30_000) -> float:
    """Returns the mean return of uniformly random actions in the evaluation's environment.

    Args:
        environment: the environment's name.
        episodes: minimum number of episodes.
        steps: minimum number of steps; the returns of short episodes often vary much.
    """
    rng, num_envs = np.random.default_rng(0), min(10, episodes)
    with envs.make(environment, num_envs=num_envs, evaluation=True) as batch:
        spec = batch.action_spec()
        lowest, highest = np.asarray(spec.minimum), np.asarray(spec.maximum)  # type: ignore[attr-defined]
        running, returns, taken = np.zeros(num_envs), [[] for _ in range(num_envs)], 0
        batch.reset()
        # Each environment plays the same number of episodes; otherwise there would be too many short ones.
        while min(map(len, returns)) * num_envs < episodes or taken < steps:
            taken += num_envs
            if np.issubdtype(spec.dtype, np.integer):
                actions = rng.integers(lowest, highest + 1, (num_envs, *spec.shape)).astype(spec.dtype)
            else:
                actions = rng.uniform(lowest, highest, (num_envs, *spec.shape)).astype(spec.dtype)
            timestep = batch.step(actions)
            running += timestep.reward
            for row in np.flatnonzero(timestep.step_type == LAST):
                returns[row].append(running[row])
                running[row] = 0.0
    return float(np.mean([each[: min(map(len, returns))] for each in returns]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.validation",
        description=f"{__doc__} Finished runs are not run again; stopped runs are resumed.",
    )
    parser.add_argument("suite", choices=list(SUITES), help="a set of agents and environments")
    parser.add_argument("--agents", nargs="+", metavar="NAME", help="only these agents")
    parser.add_argument("--environments", nargs="+", metavar="NAME", help="only these environments")
    command.add(parser, "jobs", seeds=[0, 1, 2], steps="environment steps", runs=learning.RUNS)
    return parser


def _main(options: argparse.Namespace) -> int:
    suite = SUITES[options.suite]
    chosen = {"agents": options.agents or suite.agents, "environments": options.environments or suite.environments}
    for kind, names in chosen.items():
        for name in names:
            if name not in getattr(suite, kind):
                raise UsageError(f"the suite {options.suite} has no {name!r}: {nearest(name, getattr(suite, kind))}")
    if options.jobs < 1 or (options.steps is not None and options.steps < 1):
        raise UsageError("--jobs and --steps must be at least 1.")
    command.check_seeds(options.seeds)
    out = options.out or (learning.RESULTS if options.steps is None else options.runs)
    files.make_writable_folder(out)
    wanted = {
        cell: setting if options.steps is None else dataclasses.replace(setting, steps=options.steps)
        for cell, setting in settings(options.suite).items()
        if cell[0] in chosen["environments"] and cell[1] in chosen["agents"]
    }
    found: dict[tuple[str, str], list[Outcome]] = {}
    for (environment, agent), setting in wanted.items():
        folder = options.runs / f"validation-{agent}-{environment.replace(':', '-').replace('/', '-')}"
        experiments = {
            f"{agent}, {environment}, seed {seed}": setting.experiment(seed, setting.steps, folder / f"seed-{seed}")
            for seed in options.seeds
        }
        if code := learning.run_all(setting, experiments, options.jobs, fresh=False):
            return code
        found[environment, agent] = [outcomes.read(experiment, 1) for experiment in experiments.values()]
    path = out / f"validation-{options.suite}.json"
    write(path, wanted, found)
    print("\n".join(table(path)))
    print("written:", path)
    faults = [f"{agent}, {place}: {o.fault}" for (place, agent), each in found.items() for o in each if o.fault]
    print("".join(f"FAULT: {fault}\n" for fault in faults), end="")
    return 1 if faults else 0


def write(
    path: pathlib.Path, wanted: Mapping[tuple[str, str], Setting], found: Mapping[tuple[str, str], Sequence[Outcome]]
) -> None:
    """Writes the results to `path`, and keeps its results of other agents and environments.

    An environment's results with another budget are removed, because a row of the table has one budget.
    """
    written = files.read_json(path) if path.is_file() else {}
    for (environment, agent), seeds in found.items():
        steps, entry = wanted[environment, agent].steps, written.get(environment)
        if entry is None or entry["steps"] != steps:
            random = random_return(environment) if entry is None else entry["random"]
            entry = written[environment] = {"steps": steps, "random": random, "agents": {}}
        machine = outcomes.machine(seeds)
        entry["agents"][agent] = {
            "version": machine["acme-ext"],
            "date": machine["date"],
            "seeds": {str(o.seed): round(o.score, 4) for o in seeds},
            "faults": [o.fault for o in seeds if o.fault],
        }
    files.write_json(path, written)


def table(path: pathlib.Path) -> list[str]:
    """Returns the lines of the results table, with a row for each environment.

    It has the mean and the minimum over seeds, or the return of a single seed. Results below the bar are in bold, and
    those of agents in `TRIED` have an asterisk.
    """
    written = files.read_json(path)
    agents = list(dict.fromkeys(agent for entry in written.values() for agent in entry["agents"]))
    lines = [f"| environment | steps | random | {' | '.join(agents)} |", f"|---|--:|--:|{'--:|' * len(agents)}"]
    for environment, entry in written.items():
        scores = {agent: list(each["seeds"].values()) for agent, each in entry["agents"].items()}
        best = max(float(np.mean(of_seeds)) for of_seeds in scores.values())
        bar = entry["random"] + BAR * (best - entry["random"])
        tried = TRIED.get(environment, ())
        cells = [_cell(scores.get(agent), bar) + r"\*" * (agent in tried and agent in scores) for agent in agents]
        lines.append(f"| `{environment}` | {entry['steps']:,} | {entry['random']:.3g} | {' | '.join(cells)} |")
    return lines


def _cell(scores: Sequence[float] | None, bar: float) -> str:
    if not scores:
        return ""
    mean = float(np.mean(scores))
    text = f"{mean:.4g} ({min(scores):.4g})" if len(scores) > 1 else f"{mean:.4g}"
    return text if mean >= bar else f"**{text}**"


if __name__ == "__main__":
    sys.exit(main())
