"""The hyperparameters of bootstrapped DQN."""

import dataclasses
from typing import Literal

from acme_ext.agents.dqn.config import QLearningConfig
from acme_ext.config.types import NonNegative, PositiveInt, PositiveShare
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class BDQNConfig(QLearningConfig):
    """Bootstrapped DQN (Osband et al. 2016) with randomized priors (Osband et al. 2018).

    Only the differences from DQN are here. The defaults are for small problems on a CPU; `ATARI` holds the published
    values.
    """

    # A prior must stay a fixed function of the observation; changing moments would change it.
    normalize_observations: bool = False
    max_gradient_norm: float | None = None  # one norm over all heads would couple them
    replay: TransitionConfig = TransitionConfig()  # one step; Osband et al. 2016, algorithm 1

    # The heads
    num_heads: PositiveInt = 20  # K
    # That a head learns from a step, p of the Bernoulli masks; Osband et al. 2016, section 6.1
    mask_probability: PositiveShare = 1.0
    prior_scale: NonNegative = 5.0  # beta, scale of the prior networks; 0 is Osband et al. 2016
    evaluation: Literal["vote", "mean"] = "vote"  # how the heads choose; vote in Osband et al. 2016, section 6.2


# Values without a source are those of DQN's preset.
ATARI = BDQNConfig(
    max_abs_reward=1.0,
    batch_size=32,
    learning_rate=6.25e-5,
    adam_epsilon=1.5e-4,
    huber_delta=1.0,
    target_period=2_500,
    target_rate=1.0,
    sgd_steps_per_call=1,
    replay=TransitionConfig(
        samples_per_insert=8.0,
        min_size=50_000,
        max_size=1_000_000,
        importance_anneal_steps=12_500_000,
    ),
    num_heads=10,  # Osband et al. 2016, section 6
    prior_scale=1.0,  # ours
)
"""The agent of Osband et al. 2016 for Atari games, with randomized priors."""
