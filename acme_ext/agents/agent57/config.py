"""Agent57's hyperparameters."""

import dataclasses

import numpy as np

from acme_ext.agents.ngu import config as ngu
from acme_ext.agents.ngu.config import NGUConfig
from acme_ext.config.types import NonNegative, PositiveInt, Share
from acme_ext.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Agent57Config(NGUConfig):
    """Agent57 (Badia et al. 2020b).

    The defaults are for small problems on a CPU; `ATARI` holds the published values. Values without a source are NGU's.
    """

    discount: float = 0.997  # gamma_0; 0.9999 in Badia et al. 2020b
    middle_discount: Share = 0.99  # gamma_q, about a quarter into the family; 0.997 in Badia et al. 2020b

    # Each environment has a bandit that chooses an episode's policy; its reward is the episode's return
    bandit_window: PositiveInt = 90  # newest episodes that count; Badia et al. 2020b, table 4 (160 in the text)
    bandit_epsilon: Share = 0.5  # probability of a uniformly random policy; Badia et al. 2020b, table 4
    bandit_scale: NonNegative = 1.0  # scale of the confidence bound; beta in Badia et al. 2020b, table 4

    def __post_init__(self):
        super().__post_init__()
        if not self.least_discount <= self.middle_discount <= self.discount:
            raise UsageError(
                f"middle_discount is {self.middle_discount}: it must lie between least_discount and discount, in "
                f"[{self.least_discount}, {self.discount}]."
            )
        if self.bandit_window < self.num_arms:
            raise UsageError(
                f"bandit_window is {self.bandit_window}: it must be at least num_arms, which is {self.num_arms}."
            )

    @property
    def discounts(self) -> np.ndarray:
        """The discounts per step `[N]`, float32."""
        return discounts(self.num_arms, self.discount, self.middle_discount, self.least_discount)


def discounts(num: int, most: float, middle: float, least: float) -> np.ndarray:
    """Returns the discounts `[N]` (Badia et al. 2020b, appendix A, for N = 32).

    gamma_0 = most;  middle + (most - middle) sigmoid(10 (2 j - (q - 1)) / (q - 1)) for 0 < j < q;  gamma_q = middle;
    then from gamma_{q+1} = middle to gamma_{N-1} = least, evenly spaced in the logarithm of 1 - gamma. q is 7 for
    N = 32, and scales with N; for N = 2 there is no middle. The last part differs from the printed formula, which would
    end at 0.99997, not at 0.99.
    """
    last = min(max(1, round(7 / 31 * (num - 1))), num - 2)
    j = np.arange(num)
    bend = middle + (most - middle) / (1 + np.exp(-10 * (2 * j - (last - 1)) / max(last - 1, 1)))
    rest = max(num - 1 - last, 1)
    tail = np.append(middle, ngu.discounts(max(rest, 2), middle, least)[-rest:])
    return np.where(j == 0, most, np.where(j < last, bend, tail[np.clip(j - last, 0, None)])).astype(np.float32)


# Source of the values without a comment: Badia et al. 2020b, table 4. Values that it does not give are NGU's.
ATARI = Agent57Config(
    **{
        **{field.name: getattr(ngu.ATARI, field.name) for field in dataclasses.fields(ngu.ATARI)},
        "discount": 0.9999,
        "replay": dataclasses.replace(
            ngu.ATARI.replay,
            length=160,
            period=80,
            max_size=62_500,  # 5 million observations; a sequence starts every 80
            importance_exponent=0.0,
            importance_exponent_end=0.0,
        ),
    },
    middle_discount=0.997,
)
"""The published hyperparameters."""
