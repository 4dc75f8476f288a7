"""The builder of the R2D2 agent."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from acme_ext.acting.values import SequenceValues
from acme_ext.agents.r2d2 import acting, learning, networks
from acme_ext.agents.r2d2.config import ATARI, R2D2Config
from acme_ext.builders.base import Preset
from acme_ext.builders.recurrent import RecurrentBuilder
from acme_ext.networks.recurrent import MakeCore, RecurrentNetwork
from acme_ext.types import Array, Tree


@dataclasses.dataclass(frozen=True)
class R2D2(RecurrentBuilder):
    """R2D2 for discrete actions.

    The fields are `RecurrentBuilder`'s. The network's output is action values `[T, B, A]`.
    """

    name = "r2d2"
    actions = "discrete"
    presets = {
        # Losing a life does not end the episode, and there are all 18 actions (Kapturowski et al. 2019, section 2.3).
        "atari": Preset(
            {"config": ATARI, "average_rate": None},
            {
                "atari": {"life_loss": False, "full_action_set": True},
                "envpool": {
                    "zero_discount_on_life_loss": False,
                    "episodic_life": False,
                    "full_action_space": True,
                },
            },
        )
    }
    policy_of = staticmethod(acting.make_policy)
    core_of = staticmethod(learning.make_core)

    config: R2D2Config = R2D2Config()
    core: str | MakeCore | None = "lstm"
    network: Callable[..., RecurrentNetwork] = networks.make_network
    average_rate: float | None = dataclasses.field(default=0.005, kw_only=True)  # about the last 200 learner steps

    @property
    def extras(self) -> Tree:
        zero = np.zeros((), np.float32)
        return () if self.config.retrace_lambda is None else SequenceValues(zero, zero, zero)

    @property
    def first_error(self) -> Callable[..., Array]:
        return functools.partial(acting.first_error, config=self.config)
