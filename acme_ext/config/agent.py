"""The base class of agents' configs: the settings that builders read of every config."""

from typing import Any

from acme_ext.config.fields import Checked
from acme_ext.config.types import NonNegative, NonNegativeInt, Positive, PositiveInt, Share


class AgentConfig(Checked):
    """The base class of an agent's config, which is a frozen dataclass.

    A config declares the first three of these settings, the hyperparameters of its own losses, and those of the other
    settings that its agent supports:

        @dataclasses.dataclass(frozen=True)
        class MyConfig(AgentConfig):
            discount: float = 0.99
            batch_size: int = 64
            replay: TransitionConfig = TransitionConfig()
            sgd_steps_per_call: int = 8
            epsilon: float = 0.1

    A setting that it doesn't declare is no field of it: it has the value below, which changes nothing, and users can't
    set it. This class itself is therefore no dataclass. A declaration may leave out the type's rules, which stay.
    """

    discount: Share  # gamma per step
    batch_size: PositiveInt  # items of the replay in a learner's batch
    replay: Any  # settings of the replay: a `TransitionConfig`, `SequenceConfig` or `UnrollConfig`, or of another kind

    max_abs_reward: Positive | None = None  # clips rewards to [-this, this]
    normalize_observations: bool = False  # by running mean and variance; images are not normalised
    max_abs_observation: Positive = 10.0  # clips normalised observations to [-this, this]
    random_shift: PositiveInt | None = None  # largest shift of sampled images, in pixels; 4 in Yarats et al. 2021
    sgd_steps_per_call: PositiveInt = 1  # learner steps fused in one compiled call
    variable_period: PositiveInt = 1  # actor steps between updates of its parameters
    pretrain_steps: NonNegativeInt = 0  # learner steps on demonstrations only, before acting begins
    demo_priority_offset: NonNegative | None = None  # added to a demonstration's |TD error|; None: as to own items'
