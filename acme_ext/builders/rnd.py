"""The builder of the RND agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.agents.rnd import learning, networks
from acme_ext.agents.rnd.config import ATARI, RNDConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.ppo import PPO
from acme_ext.networks.recurrent import RecurrentNetwork


@dataclasses.dataclass(frozen=True)
class RND(PPO):
    """PPO with random network distillation, for discrete and for bounded, continuous actions. The fields are PPO's."""

    name = "rnd"
    has_bonus = True
    presets = {
        # Burda et al. 2018, table 2: sticky actions, no random starts, at most 18,000 frames; lives don't end episodes.
        "atari": Preset(
            {"config": ATARI, "average_rate": None},
            {
                "atari": {"life_loss": False, "sticky_actions": 0.25, "noop_max": 0, "max_frames": 18_000},
                "envpool": {
                    "zero_discount_on_life_loss": False,
                    "episodic_life": False,
                    "repeat_action_probability": 0.25,
                    "noop_max": 1,  # EnvPool fails with 0
                    "max_episode_steps": 4_500,
                },
            },
        )
    }
    core_of = staticmethod(learning.make_core)

    config: RNDConfig = RNDConfig()
    network: Callable[..., RecurrentNetwork] = networks.make_network
