"""MuZero's hyperparameters."""

import dataclasses
from typing import Any

from acme_ext.config.agent import AgentConfig
from acme_ext.config.types import LayerSizes, NonNegative, NonNegativeInt, Positive, PositiveInt, Share
from acme_ext.errors import UsageError
from acme_ext.networks.models import Kind
from acme_ext.ops.distributional import Support
from acme_ext.ops.search import SearchConfig
from acme_ext.replay.config import ReplayConfig


@dataclasses.dataclass(frozen=True)
class RootsConfig(ReplayConfig):
    """Replay of sequences for learning from search results.

    Every one of the `length` steps can be a root, whose search results are learning targets. A sequence also holds the
    following steps, which the targets of its last roots need.
    """

    max_size: PositiveInt = 5_000
    min_size: PositiveInt = 50
    samples_per_insert: Positive = 160.0  # samples per inserted sequence: batch_size * length / steps per update
    length: PositiveInt = 20  # steps of a sequence that can be roots; for board games, the length of the longest game

    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "length": self.length, "period": self.length, "cross_episodes": False}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanningConfig(AgentConfig):
    """The hyperparameters that MuZero and AlphaZero share."""

    # The problem
    discount: Share = 0.997  # gamma per step; Schrittwieser et al. 2020, appendix G
    # Steps of a return; None: to the sequence's end; Schrittwieser et al. 2020, appendix G
    n_step: PositiveInt | None = 10

    # The search
    search: SearchConfig = SearchConfig()
    # Without Gumbel and `sampled_moves`, the temperature of acting is 1, then 0.5 after half of these environment
    # steps, and 0.25 after three quarters; Schrittwieser et al. 2020, appendix D, which counts learner steps
    temperature_steps: PositiveInt = 50_000
    # First moves of a game that are sampled in proportion to the search's visits (temperature 1), so that games differ.
    # Later moves are the search's own. 30 in Silver et al. 2018 and in Danihelka et al. 2022, appendix F
    sampled_moves: NonNegativeInt = 0
    random_share: Share = 0.0  # probability that a sampled move is uniformly random, to see all replies
    # Whether returns bootstrap from the value before one of the `sampled_moves` that differs from the search's move
    cut_sampled: bool = True

    # The network
    network_kind: Kind | None = None  # mlp, grid or residual; None: depends on torso and observation
    hidden_sizes: LayerSizes = (64,)  # units of each MLP, and of the heads
    state_size: PositiveInt = 64  # units of an MLP's state, and of the value prefix's LSTM
    channels: PositiveInt = 32  # channels of a grid's state
    blocks: NonNegativeInt = 1  # residual blocks of each of h and g, if the state is a grid
    support_size: PositiveInt = 20  # the support of h(value) and h(reward) is the integers from -this to this
    rescaling_epsilon: Positive | None = 1e-3  # of h; None: no rescaling; Schrittwieser et al. 2020, appendix F

    # Learning
    batch_size: int = 32  # sequences
    roots: PositiveInt = 8  # roots per sequence, sampled anew for every batch
    learning_rate: Positive = 2e-3  # Adam
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps of a linear decay to 0; None: constant
    weight_decay: NonNegative = 1e-4  # decoupled, as in AdamW; Schrittwieser et al. 2021, pseudocode
    max_gradient_norm: Positive | None = 5.0  # global norm; Ye et al. 2021, appendix
    value_coef: NonNegative = 0.25  # weight of the value's loss; Schrittwieser et al. 2020, appendix H
    target_period: PositiveInt = 100  # learner steps between target updates; 200 in Ye et al. 2021, appendix
    sgd_steps_per_call: PositiveInt = 1  # learner steps fused in one compiled call
    variable_period: PositiveInt = 1  # actor steps between updates of its parameters

    replay: RootsConfig = RootsConfig()

    def __post_init__(self):
        super().__post_init__()
        if self.random_share and not self.sampled_moves:
            raise UsageError(f"random_share is {self.random_share}: it is a share of sampled_moves, which is 0.")

    @property
    def support(self) -> Support:
        """The support of the distributions of values and rewards."""
        return Support(self.support_size, self.rescaling_epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MuZeroConfig(PlanningConfig):
    """MuZero (Schrittwieser et al. 2020), by default with Gumbel MuZero's search (Danihelka et al. 2022).

    The defaults are for small problems on a CPU. Values without a source are ours.
    """

    unroll_steps: PositiveInt = 5  # K, unrolled model steps; Schrittwieser et al. 2020, appendix G
    reward_coef: NonNegative = 1.0  # weight of the reward's loss
    # Share of a batch's roots whose policy target comes from a new search with the target network; 0.8 in Schrittwieser
    # et al. 2020, appendix H. Values are always bootstrapped from the target network.
    reanalyze: Share = 0.0
    # Weight of the consistency loss: the negative cosine between the model's states and the states of the following
    # observations; 2 in Ye et al. 2021, section 4.1; 0: no such loss
    consistency_coef: NonNegative = 0.0
    # Whether the model predicts, by an LSTM of `state_size` units, the sum of the rewards of up to `unroll_steps` steps
    # instead of each reward; true in Ye et al. 2021, section 4.2
    value_prefix: bool = False


BOARD = MuZeroConfig(
    discount=1.0,  # Schrittwieser et al. 2020, appendix G
    n_step=None,  # Schrittwieser et al. 2020, appendix G
    search=SearchConfig(simulations=25, value_range=0.1),
    sampled_moves=8,
    random_share=0.5,
    hidden_sizes=(128, 128),
    state_size=128,
    support_size=1,  # -1, 0 and 1: loss, draw and win
    rescaling_epsilon=None,
    unroll_steps=3,
    batch_size=16,
    value_coef=1.0,  # Schrittwieser et al. 2020, appendix G
    replay=RootsConfig(length=42, max_size=5_000, min_size=200, samples_per_insert=32.0),
)
"""For board games on a CPU, with self-play and the networks for grids.

A sequence holds a whole game of up to 42 moves.
"""

MINATAR = MuZeroConfig(
    discount=0.99,
    n_step=5,
    hidden_sizes=(32,),
    channels=16,
    blocks=0,
    unroll_steps=3,
    batch_size=16,
    roots=4,
    value_coef=1.0,  # Schrittwieser et al. 2020, appendix G
    replay=RootsConfig(samples_per_insert=20.0),
)
"""For MinAtar on a CPU, with a smaller network for grids, chosen on Breakout."""
