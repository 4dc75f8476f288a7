"""IMPALA's hyperparameters."""

import dataclasses
from typing import Literal

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import LayerSizes, NonNegative, Positive, PositiveInt, Share
from acme_ext.errors import UsageError
from acme_ext.replay.config import UnrollConfig


@dataclasses.dataclass(frozen=True)
class IMPALAConfig(AgentConfig):
    """IMPALA (Espeholt et al. 2018).

    The defaults are for small problems on a CPU; `ATARI` holds the published values. Values without a source are ours,
    chosen on CartPole, bsuite, Acrobot and LunarLander.
    """

    # The problem
    discount: float = 0.99  # gamma per step; Espeholt et al. 2018, table G.1
    # abs_one clips to [-1, 1], soft_asymmetric squashes to (-1.5, 5); Espeholt et al. 2018, section 5.3 and appendix D.
    reward_clipping: Literal["none", "abs_one", "soft_asymmetric"] = "none"
    normalize_observations: bool = False  # by running mean and variance; images are not normalised

    # The network
    hidden_sizes: LayerSizes = (64, 64)  # units of the MLP for observations that are not images
    image_features: PositiveInt = 256  # units of the layer after a convolutional torso; Espeholt et al. 2018, figure 3
    core_size: PositiveInt = 64  # units of the recurrent core, if there is one; 256 in Espeholt et al. 2018

    # Normalisation
    # Values are predicted in units of their targets' running mean and standard deviation, and advantages are divided by
    # that standard deviation; Hessel et al. 2019, section 3.1.
    normalize_values: bool = True
    value_horizon: Positive = 100_000.0  # time constant of the values' running statistics, in steps
    popart: bool = False  # rescales the last layer to keep values when statistics change; van Hasselt et al. 2016
    normalize_advantages: bool = False  # per batch, to mean 0 and variance 1

    # Learning
    batch_size: PositiveInt = 8  # unrolls; 32 in Espeholt et al. 2018, table G.1
    max_rho: Positive = 1.0  # rho-bar, clips the importance weights of TD errors; Espeholt et al. 2018, section 5.2.2
    max_c: Positive = 1.0  # c-bar, clips the trace coefficients; Espeholt et al. 2018, section 5.2.2
    value_coef: NonNegative = 0.2  # weight of the value's loss; 0.5 in Espeholt et al. 2018, table G.1
    entropy_coef: NonNegative = 0.02  # weight of the entropy bonus; 0.01 in Espeholt et al. 2018, table G.1
    learning_rate: Positive = 3e-3  # of RMSProp
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps of a linear decay to 0; None: constant
    rmsprop_decay: Share = 0.99  # of the average of squared gradients; Espeholt et al. 2018, table G.1
    rmsprop_epsilon: Positive = 1e-3  # added inside the square root; 0.01 in Espeholt et al. 2018, table G.1
    max_gradient_norm: Positive | None = 4.0  # global norm; 40 in Espeholt et al. 2018, table G.1

    # The length is of Mnih et al. 2016, section 8. With 20 as in Espeholt et al. 2018, table G.1, small problems have
    # too few updates. A recurrent core cannot learn a longer memory than this length. max_size bounds the policy lag.
    replay: UnrollConfig = UnrollConfig(max_size=8, length=5)

    def __post_init__(self):
        super().__post_init__()
        if self.popart and not self.normalize_values:
            raise UsageError("popart is true: it is a part of normalize_values, which is false.")
        if self.max_rho < self.max_c:
            raise UsageError(f"max_rho is {self.max_rho}: it must be at least max_c, which is {self.max_c}.")


ATARI = IMPALAConfig(
    normalize_values=False,
    reward_clipping="abs_one",  # Espeholt et al. 2018, table G.1
    batch_size=32,  # Espeholt et al. 2018, table G.1
    value_coef=0.5,  # Espeholt et al. 2018, table G.1
    entropy_coef=0.01,  # Espeholt et al. 2018, table G.1
    learning_rate=6e-4,  # Espeholt et al. 2018, table G.1, where it decays to 0
    rmsprop_epsilon=0.01,  # Espeholt et al. 2018, table G.1
    max_gradient_norm=40.0,  # Espeholt et al. 2018, table G.1
    replay=UnrollConfig(max_size=32, length=20),  # Espeholt et al. 2018, table G.1
)
"""The paper's values for Atari."""
