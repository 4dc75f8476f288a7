"""RND's hyperparameters."""

import dataclasses

from acme_ext.agents.ppo.config import PPOConfig
from acme_ext.config.types import NonNegative, NonNegativeInt, PositiveInt, Share
from acme_ext.errors import UsageError
from acme_ext.learning.intrinsic import DistillationConfig
from acme_ext.replay.config import UnrollConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RNDConfig(PPOConfig):
    """PPO with random network distillation (Burda et al. 2018).

    The defaults are for small problems on a CPU, and `ATARI` holds the published values. Values without a source are
    ours, chosen on the key-door grid.
    """

    # The bonus
    distillation: DistillationConfig = DistillationConfig()
    quiet_steps: NonNegativeInt = 2  # first learner steps, without bonus, while the observations' moments settle
    distillation_updates: PositiveInt = 4  # predictor updates per batch, each on another part of it
    intrinsic_discount: Share = 0.99  # gamma_I of one step; Burda et al. 2018, table 5
    extrinsic_coef: NonNegative = 2.0  # weight of the reward's advantage; Burda et al. 2018, table 5
    intrinsic_coef: NonNegative = 1.0  # weight of the bonus's advantage; Burda et al. 2018, table 5
    # Shuffles the bonuses of a batch. Control experiment: same scale of the bonus, but no information on novelty.
    shuffled: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.distillation_updates > (steps := self.batch_size * self.replay.length):
            raise UsageError(
                f"distillation_updates is {self.distillation_updates}: it must be at most the steps of a batch, which "
                f"has batch_size * replay.length = {steps}."
            )


# Source of the values without a comment: Burda et al. 2018, table 5 and the authors' code.
ATARI = RNDConfig(
    discount=0.999,
    gae_lambda=0.95,
    normalize_values=False,
    normalize_advantages=False,
    batch_size=128,
    learning_rate=1e-4,
    max_gradient_norm=None,
    entropy_coef=0.001,
    replay=UnrollConfig(max_size=128, length=128),
    clip=0.1,
    num_epochs=4,
    num_minibatches=4,
    distillation=DistillationConfig(
        features=512,
        predictor_sizes=(512, 512),
        learning_rate=1e-4,
        newest_frame=True,
        share=0.25,
    ),
    quiet_steps=50,
    distillation_updates=16,
    max_abs_reward=1.0,
)
"""The published hyperparameters; run it with 128 environments in total."""
