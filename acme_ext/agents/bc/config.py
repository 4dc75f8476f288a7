"""Behavioural cloning's hyperparameters."""

import dataclasses

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import LayerSizes, Positive, PositiveInt
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class BCConfig(AgentConfig):
    """Behavioural cloning, with the hyperparameters of the baseline in Fujimoto and Gu 2021."""

    discount = 1.0
    """Not used: learning does not use rewards."""

    normalize_observations: bool = True  # by running mean and variance; images are not normalised

    # The network
    hidden_sizes: LayerSizes = (256, 256)  # units of the MLP for observations that are not images
    image_features: PositiveInt = 512  # units of the layer after a convolutional torso

    # Learning
    batch_size: int = 256  # steps
    learning_rate: Positive = 3e-4  # Adam
    sgd_steps_per_call: int = 8  # learner steps fused in one compiled call

    replay: TransitionConfig = TransitionConfig()
