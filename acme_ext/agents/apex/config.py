"""The hyperparameters of Ape-X DQN."""

import dataclasses

from acme_ext.agents.dqn import config as dqn
from acme_ext.config.types import NonNegative, NonNegativeInt, PositiveInt, Share
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class ApexConfig(dqn.QLearningConfig):
    """Ape-X DQN (Horgan et al. 2018).

    Only the differences from DQN are here. The defaults are for small problems on a CPU with a few actors; `ATARI`
    holds the published values, and `MINATAR` is for MinAtar.
    """

    dueling: bool = True  # Horgan et al. 2018, section 3.1
    # Prioritized replay already samples large errors more often. With the squared loss some seeds learn late or not at
    # all.
    huber_delta: float | None = 10.0
    # beta is constant; Horgan et al. 2018, appendix C
    replay: TransitionConfig = TransitionConfig(n_step=10, prioritized=True, importance_exponent_end=0.4)

    # Exploration
    epsilon_base: Share = 0.4  # largest epsilon of all environments; Horgan et al. 2018, section 4.1
    # The smallest epsilon is base**(1 + this); alpha in Horgan et al. 2018, section 4.1, where it is 7. With 7 and few
    # environments, too many of them hardly explore.
    epsilon_steepness: NonNegative = 3.0
    # Environment steps, from the start of learning, in which every epsilon decays from 1 to its final value. 0, as in
    # the paper: every epsilon has its final value from the first step. Learning then begins late with few environments.
    epsilon_decay_steps: NonNegativeInt = 10_000
    evaluation_epsilon: Share = 0.0  # probability of a random action in evaluation; 0 is greedy
    variable_period: PositiveInt = 1  # actor steps between updates of its parameters


# Source of the values without a comment: Horgan et al. 2018, section 4.1 and appendix C.
ATARI = ApexConfig(
    max_abs_reward=1.0,  # Mnih et al. 2015, Methods
    batch_size=512,
    learning_rate=0.00025 / 4,
    optimizer="rmsprop",
    rmsprop_epsilon=1.5e-7,
    max_gradient_norm=40.0,
    huber_delta=None,
    target_period=2_500,
    target_rate=1.0,
    sgd_steps_per_call=1,
    replay=TransitionConfig(
        n_step=3,
        prioritized=True,
        importance_exponent_end=0.4,
        samples_per_insert=0.8,  # 19 batches of 512 per second, for 12,500 inserted transitions per second
        min_size=50_000,
        max_size=2_000_000,
        write_burst=50,
    ),
    epsilon_steepness=7.0,
    epsilon_decay_steps=0,
    variable_period=100,  # 400 frames
)
"""The published hyperparameters; the 360 actors of the paper insert more transitions than its learner samples."""

MINATAR = ApexConfig(
    **{
        **{field.name: getattr(dqn.MINATAR, field.name) for field in dataclasses.fields(dqn.QLearningConfig)},
        "double": True,
        "dueling": True,
        "replay": dataclasses.replace(dqn.MINATAR.replay, n_step=3, prioritized=True, importance_exponent_end=0.4),
    }
)
"""For MinAtar on a CPU, with the numbers of DQN's `MINATAR`."""
