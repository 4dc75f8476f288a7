"""MuZero's hyperparameters."""

import dataclasses
from typing import Any

from acme_ext.networks.models import Kind
from acme_ext.ops.distributional import Support
from acme_ext.ops.search import SearchConfig
from acme_ext.replay.config import ReplayConfig
from acme_ext.utils.checks import Checked, LayerSizes, NonNegative, NonNegativeInt, Positive, PositiveInt, Share


@dataclasses.dataclass(frozen=True)
class RootsConfig(ReplayConfig):
    """Replay of sequences, every step of which can be the root of a search that is learned from. Each also holds the
    steps after, which its last roots' targets are made of.
    """

    max_size: int = 5_000
    min_size: int = 50
    samples_per_insert: float = 160.0  # sequences sampled for each inserted: batch_size * length / steps per update
    length: PositiveInt = 20  # steps of a sequence that are its own; with boards, of the longest game

    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "length": self.length, "period": self.length, "cross_episodes": False}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanningConfig(Checked):
    """The hyperparameters that MuZero and AlphaZero share."""

    # The problem
    discount: Share = 0.997  # gamma of one step; Schrittwieser et al. 2020, appendix G
    n_step: PositiveInt | None = 10  # of a return; None: to the episode's end; Schrittwieser et al. 2020, appendix G

    # The search
    search: SearchConfig = SearchConfig()
    # Without Gumbel: the temperature of acting is 1, then 0.5 from half of these environment steps on, and 0.25 from
    # three quarters on; Schrittwieser et al. 2020, appendix D, of learner steps there
    temperature_steps: PositiveInt = 50_000
    # Moves of a game that are sampled by the visits of the search, at temperature 1, so that games differ; later ones
    # are the best. 30 in Silver et al. 2018 and in Danihelka et al. 2022, appendix F
    sampled_moves: NonNegativeInt = 0
    random_share: Share = 0.0  # of the sampled moves that are any legal one, so that no reply stays unknown
    # Whether returns end, with the value there, before a sampled move that the search would not have made
    cut_sampled: bool = True

    # The network
    network_kind: Kind | None = None  # mlp, grid or residual; None: by torso and observation
    hidden_sizes: LayerSizes = (64,)  # units of each MLP, and of the heads
    state_size: PositiveInt = 64  # units of an MLP's state
    channels: PositiveInt = 32  # of a grid's state
    blocks: NonNegativeInt = 1  # residual blocks of h and g each, where the state is a grid
    support_size: PositiveInt = 20  # values and rewards lie on the whole numbers from -this to this, as h(x)
    rescaling_epsilon: Positive | None = 1e-3  # of h; None: values as they are; Schrittwieser et al. 2020, appendix F

    # Learning
    batch_size: int = 32  # sequences
    roots: PositiveInt = 8  # of a sequence, drawn anew each time
    learning_rate: Positive = 2e-3  # Adam
    learning_rate_decay_steps: PositiveInt | None = None  # learner steps in which it falls linearly to 0; None: stays
    weight_decay: NonNegative = 1e-4  # decoupled; Schrittwieser et al. 2021, pseudocode
    max_gradient_norm: Positive | None = 5.0  # global norm; Ye et al. 2021, appendix
    value_coef: NonNegative = 0.25  # Schrittwieser et al. 2020, appendix H
    target_period: PositiveInt = 100  # learner steps between target updates; 200 in Ye et al. 2021, appendix
    sgd_steps_per_call: PositiveInt = 1  # learner steps fused in one compiled call
    variable_period: PositiveInt = 1  # steps that an actor takes with the same parameters

    replay: RootsConfig = RootsConfig()

    @property
    def support(self) -> Support:
        """Where values and rewards lie."""
        return Support(self.support_size, self.rescaling_epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MuZeroConfig(PlanningConfig):
    """MuZero (Schrittwieser et al. 2020), by default with Gumbel MuZero's search (Danihelka et al. 2022).

    The defaults are for small problems on a CPU. Where a field names no source, it is ours.
    """

    unroll_steps: PositiveInt = 5  # K, steps that the model is unrolled for; Schrittwieser et al. 2020, appendix G
    reward_coef: NonNegative = 1.0
    # Share of the roots whose policy is searched for again, by the target network, when they are learned from; 0.8 in
    # Schrittwieser et al. 2020, appendix H. Values are always bootstrapped from the target network.
    reanalyze: Share = 0.0
    # Weight of the negative cosine between the model's states and those of what was observed, 2 in Ye et al. 2021,
    # section 4.1; 0 for none
    consistency_coef: NonNegative = 0.0
    # Whether the model predicts, by an LSTM of `state_size` units, the sum of the rewards of up to `unroll_steps` steps
    # in the place of each reward; true in Ye et al. 2021, section 4.2
    value_prefix: bool = False


BOARD = MuZeroConfig(
    discount=1.0,  # Schrittwieser et al. 2020, appendix G, as the next
    n_step=None,
    search=SearchConfig(simulations=25, value_range=0.1),
    sampled_moves=8,
    random_share=0.5,
    hidden_sizes=(128, 128),
    state_size=128,
    support_size=1,  # lost, drawn and won
    rescaling_epsilon=None,
    unroll_steps=3,
    batch_size=16,
    value_coef=1.0,  # Schrittwieser et al. 2020, appendix G
    replay=RootsConfig(length=42, max_size=5_000, min_size=200, samples_per_insert=32.0),
)
"""For board games on a CPU, by self-play, with the networks of grids. Sequences hold the whole of games of up to 42
moves.
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
"""For MinAtar's games on a CPU, with a smaller network of grids, chosen on Breakout."""
