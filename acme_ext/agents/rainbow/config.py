"""Rainbow's hyperparameters."""

import dataclasses
from typing import Literal

from acme_ext.agents.dqn import config as dqn
from acme_ext.config.types import NonNegative, Positive, PositiveInt
from acme_ext.errors import UsageError
from acme_ext.ops import critics
from acme_ext.replay.config import TransitionConfig

Distribution = Literal["none", "categorical", "quantile", "implicit"]


@dataclasses.dataclass(frozen=True)
class RainbowConfig(dqn.DQNConfig):
    """Rainbow (Hessel et al. 2018).

    Its six parts are `double`, `dueling`, `replay.prioritized`, `replay.n_step`, `distribution` and `noisy`.

    The defaults are for small problems on a CPU; `ATARI` holds the published values and `MINATAR` is for MinAtar.
    Values without a source are ours.
    """

    dueling: bool = True  # Wang et al. 2016, eq. 9
    # Priorities are the KL divergence for a categorical distribution, and otherwise the absolute TD error. The exponent
    # is omega of Hessel et al. 2018, table 1.
    replay: TransitionConfig = TransitionConfig(n_step=10, prioritized=True, priority_exponent=0.5)

    # The distribution of returns. none: only expected values; categorical: Bellemare et al. 2017; quantile: Dabney et
    # al. 2018a; implicit: quantiles at sampled fractions, Dabney et al. 2018b.
    distribution: Distribution = "categorical"
    num_atoms: int = 101  # of the categorical distribution; 51 in Hessel et al. 2018, table 1
    # Returns of the first and the last atom, which must enclose all returns. These do if no |reward| is larger than 1:
    # then |return| <= 1 / (1 - discount). -10 and 10 in Hessel et al. 2018, table 1, for clipped rewards.
    v_min: float = -100.0
    v_max: float = 100.0  # the return of the last atom, see `v_min`
    num_quantiles: PositiveInt = 32  # or sampled fractions; 200 and 64 in the papers
    quantile_kappa: NonNegative = 1.0  # |error| above which the Huber loss is linear; Dabney et al. 2018a, section 5

    # Exploration, in addition to DQN's random actions. With only noise, as in Hessel et al. 2018, all episodes become
    # the same once the noise has vanished.
    noisy: bool = True  # noisy layers; Fortunato et al. 2018
    noisy_sigma: Positive = 0.5  # sigma_0; Hessel et al. 2018, table 1
    noise_period: PositiveInt = 1  # steps between noise samples of an environment; Fortunato et al. 2018, section 3.1

    def __post_init__(self):
        super().__post_init__()
        critics.check_support(self.v_min, self.v_max, self.num_atoms)
        if not self.hidden_sizes:
            raise UsageError("hidden_sizes is empty: it must have at least 1 layer, which becomes the head's.")
        if not (self.noisy or self.epsilon_start or self.epsilon_end):
            raise UsageError(
                "noisy is false, and epsilon_start and epsilon_end are 0: nothing explores. Hessel et al. 2018 take "
                "epsilon_start=1 and epsilon_end=0.01 in its place."
            )


ATARI = RainbowConfig(
    max_abs_reward=1.0,  # Hessel et al. 2018, appendix
    batch_size=32,  # Hessel et al. 2018, appendix
    learning_rate=6.25e-5,  # Hessel et al. 2018, table 1
    adam_epsilon=1.5e-4,  # Hessel et al. 2018, table 1
    huber_delta=1.0,  # applies without a distribution
    target_period=2_000,  # learner steps: 32,000 frames; Hessel et al. 2018, table 1
    target_rate=1.0,
    sgd_steps_per_call=1,
    replay=TransitionConfig(
        n_step=3,
        prioritized=True,
        priority_exponent=0.5,
        samples_per_insert=8.0,  # an update every 4 agent steps; Hessel et al. 2018, appendix
        min_size=20_000,  # 80,000 frames; Hessel et al. 2018, table 1
        max_size=1_000_000,  # Hessel et al. 2018, appendix
        importance_anneal_steps=12_500_000,  # learner steps of 200M frames, the length of a run in Hessel et al. 2018
    ),
    num_atoms=51,
    v_min=-10.0,
    v_max=10.0,
    epsilon_start=0.0,  # only noise; without noise 1, Hessel et al. 2018, 'Hyper-parameter tuning'
    epsilon_end=0.0,  # only noise; without noise 0.01, Hessel et al. 2018, 'Hyper-parameter tuning'
    epsilon_decay_steps=62_500,  # without noise, 250,000 frames; Hessel et al. 2018, 'Hyper-parameter tuning'
)
"""The published hyperparameters."""

MINATAR = RainbowConfig(
    **{
        **vars(dqn.MINATAR),
        "double": True,
        "dueling": True,
        "replay": dataclasses.replace(dqn.MINATAR.replay, n_step=3, prioritized=True, priority_exponent=0.5),
    },
    num_atoms=51,
    v_min=-10.0,  # as on Atari: values on Breakout are below 5, and atoms at distance 1 were too coarse
    v_max=10.0,
    noisy_sigma=0.1,
)
"""For MinAtar on a CPU, with the numbers of DQN's `MINATAR`: a quarter of the updates of Young and Tian 2019."""
