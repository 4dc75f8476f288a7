"""IMPALA, composed."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import jax
import numpy as np

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.acting.stochastic import extras_spec
from acme_ext.agents.impala import acting, learning, networks
from acme_ext.agents.impala.config import ATARI, IMPALAConfig
from acme_ext.builders.base import Builder
from acme_ext.builders.unrolls import unroll_queue
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.types import EnvironmentSpec


@dataclasses.dataclass(frozen=True)
class IMPALA(Builder):
    """IMPALA for discrete actions.

    Attributes:
        config: the agent's numbers.
        network: `(num_actions, config) -> agents.impala.networks.Network`.
    """

    name: ClassVar[str] = "impala"
    presets: ClassVar[dict[str, IMPALAConfig]] = {"atari": ATARI}

    config: IMPALAConfig = IMPALAConfig()
    network: Callable[[int, IMPALAConfig], networks.Network] = networks.make_network

    def make_replay(self, spec: EnvironmentSpec) -> SequenceReplay:
        # Nothing is computed: where a program is described, JAX must not start.
        memory = jax.eval_shape(lambda: acting.init_memory(self._network(spec), self.config, 1))
        state = jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), memory)
        return unroll_queue(spec, self.config, extras_spec(), state)

    def make_policy(self, spec: EnvironmentSpec, *, evaluation: bool = False) -> Policy:
        return acting.make_policy(self._network(spec), self.config, greedy=evaluation)

    def make_core(self, spec: EnvironmentSpec) -> LearnerCore:
        return learning.make_core(self._network(spec), self.config, specs.zeros(spec.observations, 1))

    def _network(self, spec: EnvironmentSpec) -> networks.Network:
        return self.network(specs.num_actions(spec, "IMPALA"), self.config)
