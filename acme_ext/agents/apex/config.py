"""The hyperparameters of Ape-X DQN."""

import dataclasses

from acme_ext.agents.dqn.config import QLearningConfig
from acme_ext.replay.config import TransitionConfig
from acme_ext.utils.checks import NonNegative, NonNegativeInt, PositiveInt, Share


@dataclasses.dataclass(frozen=True)
class ApexConfig(QLearningConfig):
    """Ape-X DQN (Horgan et al. 2018).

    What differs from DQN is here; the rest is inherited. The defaults are for small problems on a CPU with a few
    actors; `ATARI` holds the published ones.
    """

    dueling: bool = True  # Horgan et al. 2018, section 3.1
    # Prioritized replay draws large errors more often already. With the squared loss some seeds learned late, or not.
    huber_delta: float | None = 10.0
    # beta stays the same; Horgan et al. 2018, appendix C
    replay: TransitionConfig = TransitionConfig(n_step=10, prioritized=True, importance_exponent_end=0.4)

    # Exploration
    epsilon_base: Share = 0.4  # epsilon of the environment that explores most; Horgan et al. 2018, section 4.1
    # Least epsilon: base**(1 + this); alpha in Horgan et al. 2018, section 4.1, where it is 7. With few environments so
    # many of them hardly explored.
    epsilon_steepness: NonNegative = 3.0
    # Environment steps, from the start of learning on, in which every epsilon falls to its own from 1. 0, as in the
    # paper: it is its own from the first step on, with which few environments learned late.
    epsilon_decay_steps: NonNegativeInt = 10_000
    variable_period: PositiveInt = 1  # steps that an actor takes with the same parameters


# Where no other source is named: Horgan et al. 2018, section 4.1 and appendix C.
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
        samples_per_insert=0.8,  # 19 batches of 512 a second, of 12,500 transitions that come in
        min_size=50_000,
        max_size=2_000_000,
        write_burst=50,
    ),
    epsilon_steepness=7.0,
    epsilon_decay_steps=0,
    variable_period=100,  # 400 frames
)
"""The published agent, whose 360 actors make far more experience than its learner draws."""
