"""AlphaZero's hyperparameters."""

import dataclasses

from acme_ext.agents.muzero.config import PlanningConfig, RootsConfig
from acme_ext.networks.models import Kind
from acme_ext.ops.search import SearchConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlphaZeroConfig(PlanningConfig):
    """AlphaZero (Silver et al. 2018), by default with Gumbel MuZero's search (Danihelka et al. 2022).

    The defaults are for small boards on a CPU. Values without a source are ours.
    """

    discount: float = 1.0  # Silver et al. 2018
    n_step: int | None = None  # to the end of the game; Silver et al. 2018
    search: SearchConfig = SearchConfig(simulations=32, value_scale=1.0, value_range=0.1)
    sampled_moves: int = 8
    network_kind: Kind | None = "mlp"
    hidden_sizes: tuple[int, ...] = (128,)
    state_size: int = 256
    support_size: int = 1  # -1, 0 and 1: loss, draw and win
    rescaling_epsilon: float | None = None
    symmetries: bool = True  # random rotations and reflections of sampled positions, if the game has symmetries
    value_coef: float = 1.0  # Silver et al. 2018
    replay: RootsConfig = RootsConfig(length=42, max_size=5_000, min_size=200, samples_per_insert=24.0)
