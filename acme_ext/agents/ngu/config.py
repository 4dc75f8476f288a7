"""NGU's hyperparameters."""

import dataclasses
from typing import Annotated

import numpy as np

from acme_ext.agents.r2d2 import config as r2d2
from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.config.types import AT_LEAST_ONE, NonNegative, NonNegativeInt, Positive, PositiveInt, Share
from acme_ext.errors import UsageError
from acme_ext.learning.intrinsic import DistillationConfig


@dataclasses.dataclass(frozen=True)
class NGUConfig(R2D2Config):
    """NGU (Badia et al. 2020a).

    The defaults are for small problems on a CPU; `ATARI` holds the published values. Values without a source are ours,
    chosen on the key-door grid.
    """

    retrace_lambda: float | None = 0.95  # Badia et al. 2020a, table 6
    target_period: PositiveInt = 50  # learner steps between target updates
    epsilon_steepness: NonNegative = 7.0  # Horgan et al. 2018, section 4.1
    epsilon_decay_steps: NonNegativeInt = 0

    # The family of policies: policy j maximises reward + beta_j * bonus with discount gamma_j; `discount` is gamma_0
    num_arms: PositiveInt = 8  # N
    beta: NonNegative = 0.005  # the largest, of the last policy; the first has 0; 0.3 in Badia et al. 2020a, table 6
    least_discount: Share = 0.97  # gamma of the last policy, which explores most
    # Share of a batch's sequences that train policy 0; the others train the policy that acted
    exploiting_share: Share = 0.5

    # The episodic bonus
    memory_rows: int = 512  # embeddings in an episode's memory; the oldest are removed first
    neighbours: PositiveInt = 10  # k; Badia et al. 2020a, table 6
    kernel_epsilon: Positive = 1e-2  # constant in the kernel of distances; Badia et al. 2020a, appendix for the maze
    cluster_distance: NonNegative = 8e-3  # xi; Badia et al. 2020a, table 6
    distance_horizon: Positive = 10_000.0  # time constant of the average distance, in steps
    embedding_size: PositiveInt = 32  # units of an embedding
    embedding_learning_rate: NonNegative = 5e-4  # Adam; 0: stays random; Badia et al. 2020a, table 6
    embedding_decay: NonNegative = 1e-5  # L2 regularisation of its parameters; Badia et al. 2020a, table 6
    # last steps of a sequence, for embedding and predictor; Badia et al. 2020a, appendix
    embedding_steps: PositiveInt = 5

    # The lifelong bonus
    distillation: DistillationConfig = DistillationConfig(learning_rate=5e-4)
    max_lifelong: Annotated[float, AT_LEAST_ONE] = 5.0  # L; Badia et al. 2020a, table 6
    error_horizon: Positive = 100_000.0  # time constant of the errors' mean and stddev, in observations

    # Shuffles the bonuses of a batch. Control experiment: same scale of the bonus, but no information on novelty.
    shuffled: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.retrace_lambda is None:
            raise UsageError("retrace_lambda is None: the learning of a family of policies needs Retrace.")
        if self.memory_rows < self.neighbours:
            raise UsageError(
                f"memory_rows is {self.memory_rows}: it must be at least neighbours, which is {self.neighbours}."
            )
        if self.least_discount > self.discount:
            raise UsageError(
                f"least_discount is {self.least_discount}: it must be at most discount, which is {self.discount}; the "
                "policy that explores most looks least far ahead."
            )

    @property
    def is_intrinsic(self) -> bool:
        """Whether any policy of the family receives a bonus."""
        return self.num_arms > 1 or self.beta > 0

    @property
    def betas(self) -> np.ndarray:
        """The weights of the bonus `[N]`, float32."""
        return betas(self.num_arms, self.beta)

    @property
    def discounts(self) -> np.ndarray:
        """The discounts per step `[N]`, float32, in decreasing order."""
        return discounts(self.num_arms, self.discount, self.least_discount)


def betas(num: int, most: float) -> np.ndarray:
    """Returns the weights of the bonus `[N]` (Badia et al. 2020a, appendix A).

    beta_0 = 0,  beta_{N-1} = beta,  and between them beta * sigmoid(10 (2 i - (N - 2)) / (N - 2)). A single policy
    has beta.
    """
    if num == 1:
        return np.full(1, most, np.float32)
    i = np.arange(num)
    middle = most / (1 + np.exp(-10 * (2 * i - (num - 2)) / max(num - 2, 1)))
    return np.where(i == 0, 0.0, np.where(i == num - 1, most, middle)).astype(np.float32)


def discounts(num: int, most: float, least: float) -> np.ndarray:
    """Returns the discounts `[N]`, evenly spaced in the logarithm of 1 - gamma (Badia et al. 2020a, appendix A)."""
    share = np.arange(num) / max(num - 1, 1)
    # log(1 - gamma) is not finite for a discount of 1. In single precision 1 - 1e-7 is close enough.
    first, last = (np.log(np.maximum(1 - gamma, 1e-7)) for gamma in (most, least))
    return (1 - np.exp((1 - share) * first + share * last)).astype(np.float32)


# Source of the values without a comment: Badia et al. 2020a, table 6. Values that it does not give are R2D2's.
ATARI = NGUConfig(
    **{
        **{field.name: getattr(r2d2.ATARI, field.name) for field in dataclasses.fields(r2d2.ATARI)},
        "retrace_lambda": 0.95,
        "adam_epsilon": 1e-4,
        "target_period": 1_500,
        "replay": dataclasses.replace(
            r2d2.ATARI.replay,
            min_size=6_250,
            max_size=125_000,  # 5 million observations; a sequence starts every 40
        ),
        "epsilon_steepness": 8.0,  # alpha of the actors' epsilons; Badia et al. 2020a, appendix
        "evaluation_epsilon": 0.01,
    },
    num_arms=32,
    beta=0.3,
    exploiting_share=0.0,
    least_discount=0.99,
    memory_rows=30_000,
    kernel_epsilon=1e-4,
    distance_horizon=1e8,
    distillation=DistillationConfig(features=128, predictor_sizes=(128,), learning_rate=5e-4),
)
"""The published hyperparameters."""
