"""DQN's hyperparameters."""

import dataclasses
from typing import Literal

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import Positive, PositiveInt, PositiveShare, Share, Sizes
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class QLearningConfig(AgentConfig):
    """The hyperparameters that DQN shares with agents that explore differently.

    Values without a source are ours, chosen on CartPole and bsuite, and `replay.max_size` also on LunarLander.
    """

    # The problem
    discount: float = 0.99  # gamma per step; Mnih et al. 2015, table 1
    max_abs_reward: Positive | None = None  # clips rewards to [-this, this]; 1 on Atari, Mnih et al. 2015, Methods
    normalize_observations: bool = True  # by running mean and variance; images are not normalised
    random_shift: PositiveInt | None = None  # largest shift of sampled images, in pixels; 4 in Yarats et al. 2021

    # The network
    hidden_sizes: Sizes = (64, 64)  # units of the MLP for observations that are not images
    image_features: PositiveInt = 512  # units of the layer after a convolutional torso; Mnih et al. 2015, Methods
    dueling: bool = False  # separate streams for value and advantage; Wang et al. 2016, eq. 9

    # Learning
    batch_size: int = 128  # transitions
    learning_rate: Positive = 1e-3  # of the optimizer
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps of a linear decay to 0; None: constant
    optimizer: Literal["adam", "rmsprop"] = "adam"  # rmsprop is centered, without momentum; Mnih et al. 2015, Methods
    adam_epsilon: Positive = 1e-8  # added to the root of Adam's second moment; Adam's default
    rmsprop_decay: Share = 0.95  # of the gradients' moving averages; Mnih et al. 2015, table 1
    rmsprop_epsilon: Positive = 0.01  # added to the variance, in the square root; Mnih et al. 2015, table 1
    max_gradient_norm: Positive | None = 10.0  # global norm; Wang et al. 2016, section 4.2
    double: bool = True  # the online network chooses the bootstrap action; van Hasselt et al. 2016, eq. 4
    # |TD error| above which the Huber loss is linear, in the units of returns; None: squared loss. 1 is the clipped
    # error of Mnih et al. 2015, who also clip rewards.
    huber_delta: Positive | None = None
    target_period: PositiveInt = 1  # learner steps between target updates
    # Step size of a target update: 1 copies the online network. Below 1 the target network is a moving average of it
    # (Polyak; Lillicrap et al. 2016, algorithm 1).
    target_rate: PositiveShare = 0.01
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    # n_step is 3 in Hessel et al. 2018, table 1, and 1 in Mnih et al. 2015. Returns aren't corrected for the policy
    # that acted. With a large n, transitions of early policies keep the values low; a small replay drops them.
    replay: TransitionConfig = TransitionConfig(n_step=10, max_size=50_000)


@dataclasses.dataclass(frozen=True)
class DQNConfig(QLearningConfig):
    """DQN (Mnih et al. 2015) with the extensions that are now standard; each can be switched off.

    The defaults are for small problems on a CPU; `ATARI` holds the published values.
    """

    # Exploration
    epsilon_start: Share = 1.0  # probability of a random action at first; Mnih et al. 2015, table 1
    epsilon_end: Share = 0.05  # its final value
    epsilon_decay_steps: PositiveInt = 10_000  # environment steps of the decay, from the start of learning
    evaluation_epsilon: Share = 0.0  # probability of a random action in evaluation; 0 is greedy


ATARI = DQNConfig(
    max_abs_reward=1.0,
    batch_size=32,  # Mnih et al. 2015, table 1
    learning_rate=6.25e-5,  # Hessel et al. 2018, table 1
    adam_epsilon=1.5e-4,  # Hessel et al. 2018, table 1
    huber_delta=1.0,  # Mnih et al. 2015, Methods
    target_period=2_500,  # learner steps: 10,000 actions, as in the code of Mnih et al. 2015
    target_rate=1.0,
    sgd_steps_per_call=1,
    replay=TransitionConfig(
        n_step=1,  # Mnih et al. 2015, algorithm 1
        samples_per_insert=8.0,  # an update every 4 agent steps; Mnih et al. 2015, table 1
        min_size=50_000,  # Mnih et al. 2015, table 1
        max_size=1_000_000,  # Mnih et al. 2015, table 1
        importance_anneal_steps=12_500_000,  # learner steps of 200M frames, the length of a run in Mnih et al. 2015
    ),
    evaluation_epsilon=0.05,  # Mnih et al. 2015, Methods
    epsilon_end=0.1,  # Mnih et al. 2015, table 1
    epsilon_decay_steps=1_000_000,  # Mnih et al. 2015, table 1
)
"""The Nature agent with double Q-learning, Rainbow's Adam instead of RMSProp, and gradient clipping."""

MINATAR = DQNConfig(
    image_features=128,  # Young and Tian 2019
    double=False,  # Young and Tian 2019
    batch_size=32,  # Young and Tian 2019
    learning_rate=2.5e-4,  # Young and Tian 2019, for centered RMSProp
    adam_epsilon=1.5e-4,  # Hessel et al. 2018, table 1
    huber_delta=1.0,  # Young and Tian 2019
    target_period=250,  # learner steps: 1,000 frames; Young and Tian 2019
    target_rate=1.0,
    sgd_steps_per_call=2,
    replay=TransitionConfig(
        n_step=1,  # Young and Tian 2019
        samples_per_insert=8.0,  # an update every 4 frames; Obando-Ceron and Castro 2021
        min_size=5_000,  # Young and Tian 2019
        max_size=100_000,  # Young and Tian 2019
        importance_anneal_steps=75_000,  # learner steps of 300,000 frames
    ),
    epsilon_end=0.1,  # Young and Tian 2019
    epsilon_decay_steps=100_000,  # Young and Tian 2019
)
"""The DQN of Young and Tian 2019 for MinAtar, with Adam in place of RMSProp and an update every 4 frames."""
