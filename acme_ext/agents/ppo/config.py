"""PPO's hyperparameters."""

import dataclasses

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import LayerSizes, NonNegative, Positive, PositiveInt, Share
from acme_ext.errors import UsageError
from acme_ext.replay.config import UnrollConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvantageConfig(AgentConfig):
    """The hyperparameters that PPO and A2C share."""

    # The problem
    discount: float = 0.99  # gamma per step; Schulman et al. 2017, tables 3 and 5
    max_abs_reward: Positive | None = None  # clips rewards to [-this, this]; 1 on Atari, Mnih et al. 2015, Methods
    gae_lambda: Share  # lambda of generalized advantage estimation, in [0, 1]

    # The network
    hidden_sizes: LayerSizes = (64, 64)  # tanh units, without images; Schulman et al. 2017, section 6.1
    share_layers: bool  # policy and value share these layers, as they always do with images, a torso or a core
    image_features: PositiveInt = 512  # units of the layer after a convolutional torso, which policy and value share
    core_size: PositiveInt = 64  # units of the recurrent core, if there is one
    init_stddev: Positive = 1.0  # initial stddev of actions in [-1, 1]; learned, the same for all states

    # Normalisation
    normalize_observations: bool  # by running mean and variance; images are not normalised
    max_abs_observation: Positive = 10.0  # clips normalised observations to [-this, this]
    normalize_values: bool  # the network predicts values in units of the targets' running mean and variance
    value_horizon: Positive = 100_000.0  # time constant of the values' running statistics, in steps
    popart: bool = False  # rescales the last layer to keep values when statistics change; van Hasselt et al. 2016
    # per minibatch, to mean 0 and variance 1
    normalize_advantages: bool

    # Learning
    batch_size: PositiveInt  # unrolls; with as many environments, learning is on-policy
    learning_rate: Positive  # of the optimizer
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps of a linear decay to 0; None: constant
    max_gradient_norm: Positive | None = 0.5  # global norm
    value_coef: NonNegative = 0.5  # weight of the value's squared error; c_1 of Schulman et al. 2017, eq. 9
    entropy_coef: NonNegative = 0.01  # weight of the entropy bonus; c_2 of Schulman et al. 2017, eq. 9

    replay: UnrollConfig

    def __post_init__(self):
        super().__post_init__()
        if self.popart and not self.normalize_values:
            raise UsageError("popart is true: it is a part of normalize_values, which is false.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig(AdvantageConfig):
    """PPO (Schulman et al. 2017).

    The defaults are for small problems on a CPU; `ATARI`, `MINATAR` and `CONTROL` are presets. Values without a source
    are ours.
    """

    gae_lambda: float = 0.95  # Schulman et al. 2017, tables 3 and 5
    share_layers: bool = False  # Schulman et al. 2017, section 6.1
    normalize_observations: bool = True
    normalize_values: bool = True
    normalize_advantages: bool = True
    batch_size: int = 8
    learning_rate: float = 3e-4  # Schulman et al. 2017, table 3
    replay: UnrollConfig = UnrollConfig(max_size=8, length=128)  # the length is of Schulman et al. 2017, table 5

    clip: Positive = 0.2  # epsilon, clips the ratio to 1 +- epsilon; Schulman et al. 2017, table 1
    clip_decay_steps: PositiveInt | None = None  # learner steps of a linear decay to 0; None: constant
    # Largest change of a value from before the epochs, in the network's units; None: no clipping. It is in the authors'
    # code and not in the paper; Andrychowicz et al. 2021, appendix B.1.
    value_clip: Positive | None = None
    # Learning from a batch stops when a minibatch's KL divergence from the acting policy exceeds 1.5 times this; None:
    # no early stopping. From the code of Dhariwal et al. 2017 and later ones, not from the paper.
    target_kl: Positive | None = None
    num_epochs: PositiveInt = 10  # passes over each batch; Schulman et al. 2017, table 3
    num_minibatches: PositiveInt = 16  # per epoch, shuffled anew: 64 steps each; Schulman et al. 2017, table 3
    adam_epsilon: Positive = 1e-5  # added to the root of Adam's second moment

    def __post_init__(self):
        super().__post_init__()
        if self.replay.length * self.batch_size % self.num_minibatches:
            raise UsageError(
                f"num_minibatches is {self.num_minibatches}: it must divide the batch, which has "
                f"batch_size * replay.length = {self.batch_size * self.replay.length} steps."
            )


CONTROL = PPOConfig(
    batch_size=8,
    replay=UnrollConfig(max_size=8, length=256),  # with 8 unrolls the 2,048 steps of Schulman et al. 2017, table 3
    num_minibatches=32,  # of 64 steps; Schulman et al. 2017, table 3
    entropy_coef=0.0,  # Schulman et al. 2017, section 6.1
)
"""The paper's values for continuous control."""

ATARI = PPOConfig(
    max_abs_reward=1.0,
    normalize_values=False,
    learning_rate=2.5e-4,  # Schulman et al. 2017, table 5, where it decays to 0
    clip=0.1,  # Schulman et al. 2017, table 5, where it decays to 0
    num_minibatches=4,  # of 256 steps; Schulman et al. 2017, table 5
    num_epochs=3,  # Schulman et al. 2017, table 5
    value_coef=1.0,  # Schulman et al. 2017, table 5
)
"""The paper's values for Atari."""

MINATAR = PPOConfig(
    image_features=128,  # Young and Tian 2019
    learning_rate=1e-3,
    replay=UnrollConfig(max_size=8, length=32),
    num_epochs=4,
    num_minibatches=4,  # of 64 steps
)
"""For MinAtar on a CPU, with the network of Young and Tian 2019, chosen on Breakout and Freeway."""
