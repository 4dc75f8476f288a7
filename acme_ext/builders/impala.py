"""IMPALA, composed."""

import dataclasses
from collections.abc import Callable

from acme_ext.acting import stochastic
from acme_ext.agents.impala import learning, networks
from acme_ext.agents.impala.config import ATARI, IMPALAConfig
from acme_ext.builders.base import FunctionalBuilder, Preset
from acme_ext.networks.recurrent import MakeCore, RecurrentNetwork
from acme_ext.networks.torsos import Torso
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class IMPALA(FunctionalBuilder):
    """IMPALA for discrete actions.

    Attributes:
        config: hyperparameters.
        torso: makes features of observations, see `networks.torsos.features`.
        core: what remembers, see `networks.recurrent.make_core`; None for nothing.
        network: `(spec, config, torso, core) -> RecurrentNetwork` with the output of `agents.impala.networks`.
    """

    name = "impala"
    actions = "discrete"
    # The paper's deep network (Espeholt et al. 2018, section 5.3.2), without an LSTM.
    presets = {"atari": Preset({"config": ATARI, "torso": "residual", "average_rate": None})}
    policy_of = staticmethod(stochastic.network_policy)
    core_of = staticmethod(learning.make_core)

    config: IMPALAConfig = IMPALAConfig()
    torso: str | Torso | None = None
    core: str | MakeCore | None = None
    network: Callable[..., RecurrentNetwork] = networks.make_network
    average_rate: float | None = dataclasses.field(default=0.005, kw_only=True)  # about the last 200 batches

    def make_networks(self, spec: EnvironmentSpec) -> RecurrentNetwork:
        return self.network(spec, self.config, self.torso, self.core)
