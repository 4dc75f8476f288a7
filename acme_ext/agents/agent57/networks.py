"""Agent57's two networks of action values, which share no parameters."""

from typing import Any

import haiku as hk
import jax

from acme_ext.agents.agent57.config import Agent57Config
from acme_ext.agents.ngu import networks
from acme_ext.networks import recurrent, torsos
from acme_ext.types import Array, EnvironmentSpec, Params, Tree

PARTS = ("extrinsic", "intrinsic")
"""The two networks: values of the reward, and values of the bonus."""


def make_networks(
    spec: EnvironmentSpec,
    config: Agent57Config,
    torso: str | torsos.Torso | None = None,
    core: str | recurrent.MakeCore | None = "lstm",
) -> networks.NGUNetworks:
    """Returns NGU's networks with two networks of action values; their outputs are a tuple in the order of `PARTS`."""
    made = networks.make_networks(spec, config, torso, core)
    return made._replace(values=twice(made.values))


def twice(network: recurrent.RecurrentNetwork) -> recurrent.RecurrentNetwork:
    """Returns one network that consists of two copies of this one, with separate parameters.

    The parameters are a dict with the keys `PARTS`. The outputs and the recurrent states are pairs.
    """

    def init(key: Array, inputs: Any, state: Tree) -> Params:
        keys = jax.random.split(key)
        each = zip(PARTS, keys, _both(state), strict=True)
        return {name: network.network.init(key, inputs, state) for name, key, state in each}

    def apply(params: Params, key: Any, inputs: Any, state: Tree) -> tuple[tuple[Any, ...], Tree]:
        each = zip(PARTS, _both(state), strict=True)
        outputs, states = zip(*(network.network.apply(params[name], key, inputs, s) for name, s in each), strict=True)
        return outputs, states if network.core else ()

    core = network.core
    if core is not None:
        inner = core.init_state
        core = core._replace(init_state=lambda batch: (inner(batch), inner(batch)))
    return recurrent.RecurrentNetwork(hk.Transformed(init, apply), core, network.action, network.prepare_reward)


def _both(state: Tree) -> Tree:
    return state or ((), ())
