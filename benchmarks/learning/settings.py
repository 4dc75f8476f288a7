"""The settings of `python -m benchmarks.learning`, by name."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, Literal

from acme_ext import builders, launch
from acme_ext.config.assignments import configure_builder

DATA = pathlib.Path("runs") / "benchmarks" / "data"


@dataclasses.dataclass(frozen=True)
class Recorded:
    """Recorded data of a trained agent, for settings that learn from data.

    `python -m benchmarks.learning.recorded NAME` makes it.
    """

    agent: str
    environment: str
    steps: int  # environment steps of the training
    num_envs: int
    recorded: int  # minimum number of recorded steps, in whole episodes
    policy: Literal["evaluation", "training", "random"] = "evaluation"  # how the trained agent acts
    seed: int = 100  # seed of the training
    environment_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # options of its family

    def __str__(self) -> str:
        changed = "".join(f", {name}={value}" for name, value in self.environment_options.items())
        return (
            f"{self.recorded:,} recorded steps of {self.agent} after {self.steps:,} steps on {self.environment}"
            f"{changed} (seed {self.seed}), {self.policy} policy"
        )


RECORDED: dict[str, Recorded] = {
    # With such long episodes, random actions find the goal.
    "key_door": Recorded("dqn", "explore:key_door", 100_000, 8, 200, environment_options={"max_steps": 5_000}),
    "catch": Recorded("dqn", "bsuite:catch/0", 40_000, 8, 450),
    "pendulum": Recorded("td3", "gym:Pendulum-v1", 20_000, 1, 2_000),
}
"""The recorded data, by the name of its folder in `DATA`."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """An agent, an environment, a budget, and the required results.

    The agent has its defaults, or the preset of the environment's family, except for the fields in `config`.
    """

    agent: str
    environment: str
    steps: int  # environment steps
    num_envs: int
    mean: float | None = None  # bar for the seeds' mean final return; None: it is enough that nothing fails
    least: float | None = None  # bar for the worst seed's final return
    eval_every: int = 5_000  # environment steps; 0: only at the end
    eval_episodes: int = 20  # episodes of the final evaluation
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)  # fields that aren't the agent's defaults
    actors: int = 0  # actors of a program; 0: a run in one process
    on: Literal["processes", "ray"] = "processes"  # where the program's nodes run
    inference: Literal["actor", "server"] = "actor"  # where the program applies the policy
    experience: Literal["actor", "server"] = "actor"  # who writes its experience
    compiled: bool = False  # whether it is one compiled program
    parts: int = 1  # number of runs that share the budget; each resumes the one before
    environment_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # options of its family
    demos: str | None = None  # demonstrations, a name in RECORDED
    never_loses: bool = False  # also a bar: no replies of an opponent beat a seed, on either side

    def experiment(self, seed: int, steps: int, run_dir: pathlib.Path) -> launch.Experiment:
        """Returns the experiment of one seed, with a budget of `steps`."""
        builder = builders.load(self.agent)().for_environment(self.environment)
        builder = configure_builder(builder, self.config)
        return launch.Experiment(
            builder,
            self.environment,
            steps=steps,
            seed=seed,
            num_envs=self.num_envs,
            environment_options=self.environment_options,
            evaluation=launch.Evaluation(every=self.eval_every, final_episodes=self.eval_episodes),
            run_dir=str(run_dir),
            demos=None if self.demos is None else str(DATA / self.demos),
        )

    def __str__(self) -> str:
        parts = f", in {self.parts} parts, each resuming the one before" if self.parts > 1 else ""
        changed = "".join(f", {name}={value}" for name, value in {**self.config, **self.environment_options}.items())
        actors = f" for each of {self.actors} actors, as a program{self.arrangement}" if self.actors else ""
        demos = "" if self.demos is None else f", with {RECORDED[self.demos]}"
        compiled = ", compiled" if self.compiled else ""
        return (
            f"{self.agent} on {self.environment}, {self.steps:,} environment steps, num_envs={self.num_envs}"
            f"{actors}{compiled}{changed}{demos}{parts}"
        )

    @property
    def arrangement(self) -> str:
        """A description of where a program runs and what its inference server does, if these aren't the defaults."""
        on = " on Ray" if self.on == "ray" else ""
        if self.inference == "actor":
            return on
        return f"{on} with an inference server{' that writes the experience' * (self.experience == 'server')}"


def _montezuma(agent: str, **config: str) -> Setting:
    """Returns a setting with so few steps that the agent finds no reward.

    It checks that the published network trains on images without errors, and that runs resume. Batches, replay and
    episodes are small.
    """
    environment, options = "envpool:MontezumaRevenge-v5", {"max_episode_steps": 500}
    return Setting(
        agent, environment, 5_000, 4, eval_every=0, eval_episodes=2, config=config, parts=2, environment_options=options
    )


_CONTINUOUS = ("sac", "td3", "d4pg", "apex_dpg", "mpo", "dmpo")


def _finger(agent: str) -> Setting:
    """Returns a setting with a reward of 1 for each step in which the spinner turns fast."""
    return Setting(agent, "dmc:finger/spin", 60_000, 4, 500.0, 300.0, 15_000, 10)


def _ball_in_cup(agent: str) -> Setting:
    """Returns a setting with a reward of 1 for each step with the ball in the cup."""
    return Setting(agent, "dmc:ball_in_cup/catch", 60_000, 4, 700.0, 500.0, 15_000, 10)


def _doorkey(agent: str, mean: float | None = None, least: float | None = None, **config: str) -> Setting:
    """Returns a setting of DoorKey-8x8 with one fully observed map, a smaller network and fewer epochs than the
    defaults.
    """
    options = {"fixed_map": True, "view": "whole", "max_steps": 50}
    config |= {"image_features": "64", "num_epochs": "4", "num_minibatches": "4"}
    return Setting(
        agent,
        "jax:navix/DoorKey-8x8",
        500_000,
        8,
        mean,
        least,
        eval_every=50_000,
        config=config,
        compiled=True,
        environment_options=options,
    )


def _doorkey_maps(agent: str, mean: float | None = None, least: float | None = None, **config: str) -> Setting:
    """Returns a setting of DoorKey-8x8 with a new, fully observed map in every episode and MiniGrid's time limit, and
    with short sequences.
    """
    config |= {
        "image_features": "64",
        "replay.length": "20",
        "replay.burn_in": "0",
        "replay.period": "20",
        "replay.samples_per_insert": "12",
        "evaluation_epsilon": "0.05",
    }
    return Setting(
        agent,
        "jax:navix/DoorKey-8x8",
        1_000_000,
        16,
        mean,
        least,
        eval_every=50_000,
        config=config,
        compiled=True,
        environment_options={"view": "whole", "max_steps": 640},
    )


_NGU_OF_MAPS = {"beta": "0.003", "cluster_distance": "0.1", "memory_rows": "640"}
_LADDER_ALONE = {"epsilon_steepness": "7", "epsilon_decay_steps": "0", "average_rate": "none"}
_FEW_SEQUENCES = {
    "batch_size": "2",
    "replay.max_size": "200",
    "replay.min_size": "4",
    "replay.samples_per_insert": "0.25",
}
# Large batches, for a GPU
_MANY_PPO = {
    "batch_size": "1024",
    "replay.max_size": "1024",
    "num_minibatches": "32",
    "learning_rate_decay_steps": "305",
}
_MANY_DQN = {"batch_size": "512", "learning_rate": "0.001", "target_period": "100"}
_TIC_TAC_TOE = {
    "replay.length": "9",
    "replay.samples_per_insert": "48",
    "random_share": "0.5",
    "learning_rate_decay_steps": "8000",
    "average_rate": "0.01",
}
# For comparisons where rewards are rare: more old transitions, and evaluations of the newest parameters
_LARGE_REPLAY = {"replay.max_size": "100000", "average_rate": "none"}
_MODEL_OF_BOARD = {"replay.length": "9", "learning_rate_decay_steps": "21000", "network_kind": "grid"}

SETTINGS: dict[str, Setting] = {
    "dqn-cartpole": Setting("dqn", "gym:CartPole-v1", 100_000, 8, 475.0, 400.0),
    "dqn-cartpole-short": Setting("dqn", "gym:CartPole-v1", 50_000, 8),
    "dqn-cartpole-demo": Setting(  # the same as `make demo`
        "dqn",
        "gym:CartPole-v1",
        50_000,
        8,
        475.0,
        400.0,
        config={"learning_rate_decay_steps": "12500", "replay.max_size": "20000"},
    ),
    "dqn-cartpole-single": Setting("dqn", "gym:CartPole-v1", 50_000, 1, 475.0, 400.0),
    "dqn-cartpole-program": Setting("dqn", "gym:CartPole-v1", 100_000, 2, 475.0, 400.0, actors=4),
    "dqn-cartpole-ray": Setting("dqn", "gym:CartPole-v1", 100_000, 2, 475.0, 400.0, actors=4, on="ray"),
    "r2d2-catch-ray": Setting("r2d2", "bsuite:catch/0", 40_000, 2, 0.9, 0.8, actors=4, on="ray"),
    "impala-catch-ray": Setting("impala", "bsuite:catch/0", 40_000, 2, 0.9, 0.8, actors=4, on="ray"),
    "impala-catch-ray-server": Setting(
        "impala", "bsuite:catch/0", 40_000, 2, 0.9, 0.8, actors=4, on="ray", inference="server"
    ),
    "dqn-cartpole-server": Setting("dqn", "gym:CartPole-v1", 100_000, 2, 475.0, 400.0, actors=4, inference="server"),
    "dqn-catch": Setting("dqn", "bsuite:catch/0", 40_000, 8, 0.9, 0.8),
    "dqn-catch-single": Setting("dqn", "bsuite:catch/0", 40_000, 1, 0.9, 0.8),
    "dqn-catch-server": Setting("dqn", "bsuite:catch/0", 40_000, 2, 0.9, 0.8, actors=4, inference="server"),
    "discrete_sac-catch": Setting("discrete_sac", "bsuite:catch/0", 40_000, 8, 0.9, 0.8),
    "discrete_sac-cartpole": Setting("discrete_sac", "gym:CartPole-v1", 100_000, 8, 475.0, 400.0),
    # It was not tuned on this environment.
    "discrete_sac-acrobot": Setting("discrete_sac", "gym:Acrobot-v1", 50_000, 8, -100.0, -110.0),
    "apex-cartpole": Setting("apex", "gym:CartPole-v1", 100_000, 2, 475.0, 400.0, actors=4),
    "apex-cartpole-process": Setting("apex", "gym:CartPole-v1", 100_000, 8, 475.0, 400.0),
    "apex-catch": Setting("apex", "bsuite:catch/0", 40_000, 2, 0.9, 0.8, actors=4),
    "rainbow-cartpole": Setting("rainbow", "gym:CartPole-v1", 100_000, 8, 475.0, 400.0),
    "rainbow-cartpole-program": Setting("rainbow", "gym:CartPole-v1", 100_000, 2, 475.0, 400.0, actors=2),
    "rainbow-catch": Setting("rainbow", "bsuite:catch/0", 40_000, 8, 0.9, 0.8),
    "muzero-minatar-breakout": Setting("muzero", "minatar:breakout", 300_000, 8, None, None, 15_000, 50),
    **{
        f"{agent}-minatar-{game}-1m": Setting(agent, f"minatar:{game}", 1_000_000, 8, eval_every=50_000)
        for game in ("breakout", "freeway", "seaquest")
        for agent in ("dqn", "rainbow", "ppo", "impala")
    },
    **{
        f"{agent}-minatar-{game}-10m": Setting(
            agent,
            f"jax:minatar-{game}",
            10_000_000,
            num_envs,
            eval_every=1_000_000,
            config=config,
            compiled=True,
        )
        for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
        for agent, num_envs, config in (("ppo", 1_024, _MANY_PPO), ("dqn", 256, _MANY_DQN))
    },
    "ppo-pong": Setting(
        "ppo",
        "envpool:Pong-v5",
        4_000_000,
        8,
        18.0,
        18.0,
        eval_every=200_000,
        config={
            "torso": "small",
            "learning_rate": "5e-4",
            "learning_rate_decay_steps": "5000",
            "value_coef": "0.25",
            "num_epochs": "4",
        },
        environment_options={"img_height": 42, "img_width": 42},
    ),
    "muzero-cartpole": Setting("muzero", "gym:CartPole-v1", 50_000, 8, 475.0, 400.0),
    "muzero-catch": Setting("muzero", "bsuite:catch/0", 20_000, 8, 0.95, 0.9),
    # Returns are against a random player; the bar is about all possible replies. Games have up to nine moves.
    "alphazero-tic-tac-toe": Setting(
        "alphazero",
        "board:tic_tac_toe",
        40_000,
        16,
        None,
        None,
        10_000,
        100,
        config=_TIC_TAC_TOE,
        never_loses=True,
    ),
    "alphazero-tic-tac-toe-server": Setting(
        "alphazero",
        "board:tic_tac_toe",
        40_000,
        8,
        None,
        None,
        10_000,
        100,
        config=_TIC_TAC_TOE,
        actors=2,
        inference="server",
        never_loses=True,
    ),
    # MuZero has to learn the rules, which takes twice as many steps.
    "muzero-tic-tac-toe": Setting(
        "muzero", "board:tic_tac_toe", 80_000, 16, None, None, 20_000, 100, config=_MODEL_OF_BOARD, never_loses=True
    ),
    "muzero-tic-tac-toe-server": Setting(
        "muzero",
        "board:tic_tac_toe",
        100_000,
        8,
        None,
        None,
        20_000,
        100,
        config={**_MODEL_OF_BOARD, "learning_rate_decay_steps": "26000"},
        actors=2,
        inference="server",
        never_loses=True,
    ),
    # Too few steps to improve the return. This checks that the residual network trains on images without errors.
    "muzero-pong": Setting(
        "muzero",
        "envpool:Pong-v5",
        5_000,
        4,
        eval_every=0,
        eval_episodes=2,
        config={
            "batch_size": "4",
            "roots": "4",
            "search.simulations": "8",
            "replay.max_size": "200",
            "replay.min_size": "8",
            "replay.samples_per_insert": "1",
        },
        parts=2,
        environment_options={"max_episode_steps": 500},
    ),
    # This task requires memory: without it, the mean return is always 0.
    "r2d2-memory": Setting("r2d2", "bsuite:memory_len/10", 30_000, 8, 0.9, 0.8, 3_000, 100),
    "r2d2-memory-server": Setting(
        "r2d2",
        "bsuite:memory_len/10",
        30_000,
        2,
        0.9,
        0.8,
        3_000,
        100,
        actors=4,
        inference="server",
        experience="server",
    ),
    "dqn-memory": Setting("dqn", "bsuite:memory_len/10", 30_000, 8, None, None, 3_000, 100),
    "r2d2-catch": Setting("r2d2", "bsuite:catch/0", 40_000, 8, 0.9, 0.8),
    "r2d2-cartpole": Setting("r2d2", "gym:CartPole-v1", 100_000, 8, 475.0, 400.0),
    "r2d2-cartpole-program": Setting("r2d2", "gym:CartPole-v1", 100_000, 2, 475.0, 400.0, actors=4),
    "sac-pendulum": Setting("sac", "gym:Pendulum-v1", 20_000, 1, -200.0, -250.0),
    "td3-pendulum": Setting("td3", "gym:Pendulum-v1", 20_000, 1, -200.0, -250.0),
    "sac-swingup": Setting("sac", "dmc:cartpole/swingup", 100_000, 1, 750.0, 700.0, 20_000, 10),
    "td3-swingup": Setting("td3", "dmc:cartpole/swingup", 100_000, 1, 750.0, 700.0, 20_000, 10),
    "d4pg-pendulum": Setting(
        "d4pg", "gym:Pendulum-v1", 20_000, 4, -200.0, -250.0, config={"v_min": "-1000", "v_max": "0"}
    ),
    "apex_dpg-pendulum": Setting("apex_dpg", "gym:Pendulum-v1", 20_000, 1, -200.0, -250.0, actors=4),
    "mpo-pendulum": Setting("mpo", "gym:Pendulum-v1", 40_000, 4, -200.0, -250.0),
    "dmpo-pendulum": Setting(
        "dmpo", "gym:Pendulum-v1", 40_000, 4, -200.0, -250.0, config={"v_min": "-1000", "v_max": "0"}
    ),
    "d4pg-swingup": Setting("d4pg", "dmc:cartpole/swingup", 100_000, 4, 750.0, 700.0, 20_000, 10),
    "dmpo-swingup": Setting("dmpo", "dmc:cartpole/swingup", 100_000, 4, 750.0, 700.0, 20_000, 10),
    "apex_dpg-swingup": Setting("apex_dpg", "dmc:cartpole/swingup", 100_000, 1, 750.0, 700.0, 20_000, 10, actors=4),
    "mpo-swingup": Setting("mpo", "dmc:cartpole/swingup", 100_000, 4, 750.0, 700.0, 20_000, 10),
    **{f"{agent}-finger": _finger(agent) for agent in _CONTINUOUS},
    **{f"{agent}-ball_in_cup": _ball_in_cup(agent) for agent in _CONTINUOUS},
    "ppo-cartpole": Setting("ppo", "gym:CartPole-v1", 100_000, 8, 490.0, 450.0),
    "ppo-cartpole-program": Setting("ppo", "gym:CartPole-v1", 100_000, 2, 490.0, 450.0, actors=4),
    "ppo-cartpole-server": Setting(
        "ppo", "gym:CartPole-v1", 100_000, 2, 490.0, 450.0, actors=4, inference="server", experience="server"
    ),
    "ppo-catch": Setting("ppo", "bsuite:catch/0", 40_000, 8, 0.9, 0.8),
    "ppo-balance": Setting("ppo", "dmc:cartpole/balance", 200_000, 8, 900.0, 850.0, 20_000, 10),
    "impala-cartpole": Setting("impala", "gym:CartPole-v1", 100_000, 8, 490.0, 450.0),
    "impala-catch": Setting("impala", "bsuite:catch/0", 40_000, 8, 0.9, 0.8),
    "impala-cartpole-program": Setting("impala", "gym:CartPole-v1", 100_000, 2, 490.0, 450.0, actors=4),
    "impala-cartpole-server": Setting(
        "impala",
        "gym:CartPole-v1",
        100_000,
        2,
        490.0,
        450.0,
        actors=4,
        inference="server",
        experience="server",
    ),
    "impala-catch-program": Setting("impala", "bsuite:catch/0", 40_000, 2, 0.9, 0.8, actors=4),
    "impala-catch-server": Setting(
        "impala", "bsuite:catch/0", 40_000, 2, 0.9, 0.8, actors=4, inference="server", experience="server"
    ),
    "impala-memory": Setting(
        "impala",
        "bsuite:memory_len/10",
        100_000,
        8,
        0.9,
        0.8,
        10_000,
        100,
        config={"core": "lstm", "core_size": "32", "replay.length": "20", "max_gradient_norm": "40"},
    ),
    "impala-memory-server": Setting(
        "impala",
        "bsuite:memory_len/10",
        100_000,
        2,
        0.9,
        0.8,
        10_000,
        100,
        config={"core": "lstm", "core_size": "32", "replay.length": "20", "max_gradient_norm": "40"},
        actors=4,
        inference="server",
        experience="server",
    ),
    # Different shares of demonstrations, of which there are five. With a share of 0, R2D3 is R2D2, and DQfD is DQN with
    # an additional 1-step loss.
    **{
        f"{agent}-key_door" + ("" if ratio is None else f"-{ratio:g}"): Setting(
            agent,
            "explore:key_door",
            30_000,
            8,
            *((None, None) if ratio == 0 else (0.9, 0.9)),
            eval_every=3_000,
            config={} if ratio is None else {"replay.demo_ratio": f"{ratio:g}"},
            demos="key_door",
        )
        for agent, ratios in (("r2d3", (0, None, 1 / 4, 1 / 2)), ("dqfd", (0, 1 / 16, None, 1 / 2)))
        for ratio in ratios  # None: the agent's default, 1/16 and 1/4
    },
    # A reward that random actions don't find: without a bonus, with one, and with shuffled bonuses.
    "dqn-key_door": Setting("dqn", "explore:key_door", 150_000, 8, eval_every=10_000, config=_LARGE_REPLAY),
    "dqn-key_door-rnd": Setting(
        "dqn", "explore:key_door", 150_000, 8, 0.9, 0.9, eval_every=10_000, config={"intrinsic": "rnd", **_LARGE_REPLAY}
    ),
    "dqn-key_door-shuffled": Setting(
        "dqn", "explore:key_door", 150_000, 8, eval_every=10_000, config={"intrinsic": "rnd_shuffled", **_LARGE_REPLAY}
    ),
    "ppo-key_door": Setting("ppo", "explore:key_door", 200_000, 8, eval_every=20_000),
    "rnd-key_door": Setting("rnd", "explore:key_door", 200_000, 8, 0.9, 0.9, eval_every=20_000),
    # On a larger map: without a bonus, with one, and with shuffled bonuses.
    "ppo-key_door-large": Setting(
        "ppo", "explore:key_door", 600_000, 8, eval_every=40_000, environment_options={"size": 15}
    ),
    "rnd-key_door-large": Setting(
        "rnd", "explore:key_door", 600_000, 8, 0.9, 0.9, eval_every=40_000, environment_options={"size": 15}
    ),
    "rnd-key_door-large-shuffled": Setting(
        "rnd",
        "explore:key_door",
        600_000,
        8,
        eval_every=40_000,
        config={"shuffled": "true"},
        environment_options={"size": 15},
    ),
    # Agents with memory, with their defaults: without a bonus, with one, and with shuffled bonuses.
    **{
        f"{agent}-{task}{arm}": Setting(agent, f"explore:{task}", steps, 8, *bars, eval_every=5_000, config=config)
        for task, steps in (("chain", 100_000), ("key_door", 150_000))
        for agent, arm, bars, config in (
            ("r2d2", "", (), _LADDER_ALONE),  # it explores like NGU
            ("ngu", "", (0.9, 0.9), {}),
            ("ngu", "-shuffled", (), {"shuffled": "true"}),
            ("agent57", "", (0.9, 0.9), {}),
        )
    },
    # Agent57 needs longer: with seed 0 it had not found the reward after 100,000 steps.
    "agent57-chain": Setting("agent57", "explore:chain", 300_000, 8, 0.9, 0.9, eval_every=10_000),
    # The same agents as programs, with inference in the actors and on a server.
    **{
        f"{agent}-{task}-{arrangement}": Setting(
            agent,
            f"explore:{task}",
            steps,
            2,
            0.9,
            0.9,
            eval_every=every,
            actors=4,
            inference="server" if arrangement == "server" else "actor",
        )
        for agent, task, steps, every in (
            ("rnd", "key_door", 400_000, 20_000),
            ("ngu", "chain", 100_000, 5_000),
            ("agent57", "chain", 300_000, 10_000),
        )
        for arrangement in ("program", "server")
    },
    # MiniGrid's DoorKey in JAX, with one map, and episodes so short that random actions don't reach the goal.
    "ppo-doorkey": _doorkey("ppo"),
    "rnd-doorkey": _doorkey("rnd", 0.8, 0.8),
    "rnd-doorkey-shuffled": _doorkey("rnd", shuffled="true"),
    # A new map in every episode
    "r2d2-doorkey-maps": _doorkey_maps("r2d2"),
    "ngu-doorkey-maps": _doorkey_maps("ngu", 0.8, 0.8, **_NGU_OF_MAPS),
    "ngu-doorkey-maps-shuffled": _doorkey_maps("ngu", shuffled="true", **_NGU_OF_MAPS),
    "rnd-montezuma": _montezuma(
        "rnd",
        **{
            "batch_size": "4",
            "replay.max_size": "4",
            "num_epochs": "1",
            "distillation_updates": "4",
            "quiet_steps": "2",
        },
    ),
    "ngu-montezuma": _montezuma("ngu", **_FEW_SEQUENCES),
    "agent57-montezuma": _montezuma("agent57", **_FEW_SEQUENCES),
    # One action sequence of 2^20 finds the reward; every right action on the way has a small cost.
    "dqn-deep_sea": Setting("dqn", "bsuite:deep_sea/5", 60_000, 8, eval_every=3_000, config=_LARGE_REPLAY),
    "bdqn-deep_sea": Setting("bdqn", "bsuite:deep_sea/5", 60_000, 8, 0.95, 0.95, eval_every=3_000),
    "bdqn-catch": Setting("bdqn", "bsuite:catch/0", 40_000, 8, 0.9, 0.8),
    "discrete_sqil-catch": Setting(
        "discrete_sqil", "bsuite:catch/0", 20_000, 8, 0.9, 0.8, eval_every=2_000, demos="catch"
    ),
    # The demonstrator's mean return in 100 episodes is -145, and that of random actions -1,220. The bar for the mean
    # allows a loss of 5% of the difference. When the replay kept all of the agent's own experience, one run's
    # evaluations fell from -146 to -628 between the steps 15,000 and 20,000.
    "sqil-pendulum": Setting(
        "sqil",
        "gym:Pendulum-v1",
        20_000,
        1,
        -200.0,
        -250.0,
        eval_episodes=50,
        demos="pendulum",
        config={"hidden_sizes": "64,64", "replay.max_size": "5000", "learning_rate_decay_steps": "20000"},
    ),
    "a2c-cartpole": Setting("a2c", "gym:CartPole-v1", 100_000, 8, 490.0, 450.0),
    "a2c-cartpole-program": Setting("a2c", "gym:CartPole-v1", 100_000, 2, 490.0, 450.0, actors=4),
    "a2c-catch": Setting("a2c", "bsuite:catch/0", 40_000, 8, 0.9, 0.8),
}
