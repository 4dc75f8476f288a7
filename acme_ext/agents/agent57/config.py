"""Agent57's hyperparameters."""

import dataclasses

import numpy as np

from acme_ext.agents.ngu import config as ngu
from acme_ext.agents.ngu.config import NGUConfig
from acme_ext.errors import UsageError
from acme_ext.utils.checks import NonNegative, PositiveInt, Share


@dataclasses.dataclass(frozen=True)
class Agent57Config(NGUConfig):
    """Agent57 (Badia et al. 2020b).

    The defaults are for small problems on a CPU; `ATARI` holds the published ones. Where a field names no source, it is
    NGU's.
    """

    discount: float = 0.997  # gamma_0; 0.9999 in Badia et al. 2020b
    middle_discount: Share = 0.99  # gamma of a quarter of the family's way down; 0.997 in Badia et al. 2020b

    # The bandit of each environment, whose reward is an episode's return
    bandit_window: PositiveInt = 90  # newest episodes that it knows; Badia et al. 2020b, table 4 (and 160 in the text)
    bandit_epsilon: Share = 0.5  # share of episodes in which any policy is played; Badia et al. 2020b, table 4
    bandit_scale: NonNegative = 1.0  # of the bound on a policy's mean; beta in Badia et al. 2020b, table 4

    def __post_init__(self):
        super().__post_init__()
        if not self.least_discount <= self.middle_discount <= self.discount:
            raise UsageError(
                f"middle_discount is {self.middle_discount}: it must lie between least_discount and discount, in "
                f"[{self.least_discount}, {self.discount}]."
            )

    @property
    def discounts(self) -> np.ndarray:
        """The discounts of one step `[N]`, float32."""
        return discounts(self.num_arms, self.discount, self.middle_discount, self.least_discount)


def discounts(num: int, most: float, middle: float, least: float) -> np.ndarray:
    """Returns the discounts `[N]` (Badia et al. 2020b, appendix A, for N = 32).

    gamma_0 = most;  middle + (most - middle) sigmoid(10 (2 j - (q - 1)) / (q - 1)) for 0 < j < q;  gamma_q = middle;
    and from gamma_{q+1} = middle to gamma_{N-1} = least evenly in the logarithm of 1 - gamma. q is 7 of 32, and in
    proportion. The printed formula of the last part would end at 0.99997 and not at 0.99.
    """
    last = max(1, round(7 / 31 * (num - 1)))
    j = np.arange(num)
    bend = middle + (most - middle) / (1 + np.exp(-10 * (2 * j - (last - 1)) / max(last - 1, 1)))
    rest = max(num - 1 - last, 1)
    tail = np.append(middle, ngu.discounts(max(rest, 2), middle, least)[-rest:])
    return np.where(j == 0, most, np.where(j < last, bend, tail[np.clip(j - last, 0, None)])).astype(np.float32)


# Where no other source is named: Badia et al. 2020b, table 4. What it leaves out is NGU's.
ATARI = Agent57Config(
    **{
        **{field.name: getattr(ngu.ATARI, field.name) for field in dataclasses.fields(ngu.ATARI)},
        "discount": 0.9999,
        "replay": dataclasses.replace(
            ngu.ATARI.replay,
            length=160,
            period=80,
            max_size=50_000,
            importance_exponent=0.0,
            importance_exponent_end=0.0,
        ),
    },
    middle_discount=0.997,
)
"""The published agent, on whichever hardware."""
