"""The builder of the IMPALA agent."""

import dataclasses
import functools
from collections.abc import Callable

from acme_ext.acting import stochastic
from acme_ext.agents.impala import learning, losses, networks
from acme_ext.agents.impala.config import ATARI, IMPALAConfig
from acme_ext.builders.base import Preset
from acme_ext.builders.recurrent import RecurrentBuilder
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.types import Array


@dataclasses.dataclass(frozen=True)
class IMPALA(RecurrentBuilder):
    """IMPALA for discrete actions.

    The fields are `RecurrentBuilder`'s. The network's output is described in `agents.impala.networks`.
    """

    name = "impala"
    actions = "discrete"
    # The paper's deep network (Espeholt et al. 2018, section 5.3.2), without an LSTM.
    presets = {"atari": Preset({"config": ATARI, "torso": "residual", "average_rate": None})}
    policy_of = staticmethod(stochastic.network_policy)
    core_of = staticmethod(learning.make_core)

    config: IMPALAConfig = IMPALAConfig()
    network: Callable[..., RecurrentNetwork] = networks.make_network
    average_rate: float | None = dataclasses.field(default=0.005, kw_only=True)  # about the last 200 batches

    @property
    def clipping(self) -> tuple[Callable[[Array], Array], IMPALAConfig]:
        clip = functools.partial(losses.clip_rewards, how=self.config.reward_clipping)
        return clip, dataclasses.replace(self.config, reward_clipping="none")
