"""The builder of the CRR agent."""

import dataclasses
from collections.abc import Callable

from acme_ext.acting import continuous
from acme_ext.agents.crr import learning
from acme_ext.agents.crr.config import CRRConfig
from acme_ext.agents.iql.networks import Networks, make_networks
from acme_ext.builders.base import NetworkBuilder


@dataclasses.dataclass(frozen=True)
class CRR(NetworkBuilder):
    """Critic regularized regression for a continuous, bounded action, from recorded data. The fields are
    `NetworkBuilder`'s.
    """

    name = "crr"
    actions = "continuous"
    wants_data = True
    policy_of = staticmethod(continuous.gaussian_policy)
    core_of = staticmethod(learning.make_core)

    config: CRRConfig = CRRConfig()
    network: Callable[..., Networks] = make_networks
