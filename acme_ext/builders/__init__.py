"""The builders of all agents: `acme_ext.builders.DQN` and the others are imported on first use."""

import dataclasses
import importlib
import importlib.metadata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from acme_ext.config.assignments import restore_config, restore_fields
from acme_ext.config.values import importable_name, load_object
from acme_ext.errors import UsageError, nearest

if TYPE_CHECKING:
    from acme_ext.builders.a2c import A2C as A2C
    from acme_ext.builders.agent57 import Agent57 as Agent57
    from acme_ext.builders.alphazero import AlphaZero as AlphaZero
    from acme_ext.builders.apex import ApexDQN as ApexDQN
    from acme_ext.builders.apex_dpg import ApexDPG as ApexDPG
    from acme_ext.builders.base import Agent as Agent
    from acme_ext.builders.base import Builder as Builder
    from acme_ext.builders.base import Preset as Preset
    from acme_ext.builders.bc import BC as BC
    from acme_ext.builders.bcq import BCQ as BCQ
    from acme_ext.builders.bdqn import BootstrappedDQN as BootstrappedDQN
    from acme_ext.builders.cql import CQL as CQL
    from acme_ext.builders.crr import CRR as CRR
    from acme_ext.builders.d4pg import D4PG as D4PG
    from acme_ext.builders.discrete_cql import DiscreteCQL as DiscreteCQL
    from acme_ext.builders.discrete_sac import DiscreteSAC as DiscreteSAC
    from acme_ext.builders.discrete_sqil import DiscreteSQIL as DiscreteSQIL
    from acme_ext.builders.dmpo import DMPO as DMPO
    from acme_ext.builders.dqfd import DQfD as DQfD
    from acme_ext.builders.dqn import DQN as DQN
    from acme_ext.builders.impala import IMPALA as IMPALA
    from acme_ext.builders.iql import IQL as IQL
    from acme_ext.builders.mpo import MPO as MPO
    from acme_ext.builders.muzero import MuZero as MuZero
    from acme_ext.builders.ngu import NGU as NGU
    from acme_ext.builders.ppo import PPO as PPO
    from acme_ext.builders.r2d2 import R2D2 as R2D2
    from acme_ext.builders.r2d3 import R2D3 as R2D3
    from acme_ext.builders.rainbow import Rainbow as Rainbow
    from acme_ext.builders.rnd import RND as RND
    from acme_ext.builders.sac import SAC as SAC
    from acme_ext.builders.sqil import SQIL as SQIL
    from acme_ext.builders.td3 import TD3 as TD3
    from acme_ext.builders.td3_bc import TD3BC as TD3BC

_OF_BASE = ("Agent", "Builder", "Preset")

AGENTS: dict[str, tuple[str, str]] = {
    "dqn": ("DQN", "double DQN with optional dueling heads, n-step returns and prioritized replay; discrete actions"),
    "rainbow": ("Rainbow", "DQN with six improvements, each of them optional; discrete actions"),
    "apex": ("ApexDQN", "Ape-X DQN: many actors with different epsilons, prioritized replay; discrete actions"),
    "r2d2": ("R2D2", "recurrent Q-learning from sequences with stored recurrent state; discrete actions"),
    "r2d3": ("R2D3", "R2D2 that also learns from demonstrations; discrete actions"),
    "dqfd": ("DQfD", "DQN pretrained on demonstrations, with a margin loss; discrete actions"),
    "bdqn": ("BootstrappedDQN", "DQN with several heads, one of which acts in each episode; discrete actions"),
    "ngu": ("NGU", "R2D2 with several policies, from exploring to exploiting, and a novelty bonus; discrete actions"),
    "agent57": (
        "Agent57",
        "NGU with separate values of reward and bonus, and a bandit that chooses its policy; discrete actions",
    ),
    "muzero": ("MuZero", "tree search in a learned model; Gumbel MuZero by default; discrete actions"),
    "alphazero": ("AlphaZero", "tree search with the rules of a board game; learns from self-play"),
    "sac": ("SAC", "soft actor-critic with two critics and a learned temperature; continuous actions"),
    "discrete_sac": ("DiscreteSAC", "SAC with exact expectations over actions; discrete actions"),
    "td3": ("TD3", "deterministic policy with two critics, smoothed targets and delayed updates; continuous actions"),
    "d4pg": ("D4PG", "deterministic policy with a categorical critic and optional n-step returns; continuous actions"),
    "apex_dpg": ("ApexDPG", "deterministic policy with many actors and prioritized replay; continuous actions"),
    "mpo": ("MPO", "maximum a posteriori policy optimisation, with bounded policy updates; continuous actions"),
    "dmpo": ("DMPO", "MPO with a categorical critic; continuous actions"),
    "impala": ("IMPALA", "actor-critic that corrects for the lag of its actors; optional LSTM; discrete actions"),
    "ppo": ("PPO", "clipped policy gradient with several epochs per batch; discrete and continuous actions"),
    "rnd": ("RND", "PPO with a novelty bonus that has its own value function; discrete and continuous actions"),
    "a2c": ("A2C", "advantage actor-critic with one step per batch; discrete and continuous actions"),
    "bc": ("BC", "behavioural cloning from recorded data; discrete and continuous actions"),
    "td3_bc": ("TD3BC", "TD3 from recorded data, whose policy also imitates the data; continuous actions"),
    "iql": ("IQL", "implicit Q-learning from recorded data; continuous actions"),
    "cql": ("CQL", "SAC from recorded data, with low values for unrecorded actions; continuous actions"),
    "crr": ("CRR", "imitates the recorded actions that its critic prefers to its policy's; continuous actions"),
    "discrete_cql": ("DiscreteCQL", "DQN from recorded data, with low values for unrecorded actions; discrete actions"),
    "bcq": ("BCQ", "DQN restricted to actions that are likely in recorded data; discrete actions"),
    "sqil": ("SQIL", "SAC with a reward for acting as the demonstrations do; continuous actions"),
    "discrete_sqil": ("DiscreteSQIL", "DQN with a reward for acting as the demonstrations do; discrete actions"),
}
"""Name on the command line -> (class in `acme_ext.builders.NAME`, one-line description)."""


def installed() -> dict[str, str]:
    """Returns the agents that other installed packages provide: a dictionary from name to `module:class`.

    A package declares its agents as entry points of the group `acme_ext.agents`. The names in `AGENTS` can't be
    replaced.
    """
    points = importlib.metadata.entry_points(group="acme_ext.agents")
    return {point.name: point.value for point in points if point.name not in AGENTS}


def check_agent_name(name: str) -> None:
    """Raises UsageError if there is no agent with this name."""
    if ":" in name:
        load(name)
    elif name not in AGENTS and name not in (others := installed()):
        raise UsageError(
            f"there is no agent {name!r}: {nearest(name, [*AGENTS, *others])} Name your own agent as module:class."
        )


def load(name: str) -> Any:
    """Returns an agent's builder class, given its name on the command line or `module:class`.

    Raises:
        UsageError: there is no such agent.
    """
    if name in AGENTS:
        return getattr(importlib.import_module(f"acme_ext.builders.{name}"), AGENTS[name][0])
    if ":" not in name:
        check_agent_name(name)
    found = load_object(name if ":" in name else installed()[name])
    if not isinstance(found, type) or not issubclass(found, load_base()):
        raise UsageError(f"{name!r} is {found!r}: an agent is a subclass of acme_ext.builders.Builder.")
    return found


def make(name: str) -> Any:
    """Returns an agent's builder with default fields, given a name that `load` accepts.

    Raises:
        UsageError: there is no such agent, or its class has an abstract method or a field without a default.
    """
    builder_class = load(name)
    missing = [
        *sorted(builder_class.__abstractmethods__),
        *(f.name for f in dataclasses.fields(builder_class) if f.default is f.default_factory is dataclasses.MISSING),
    ]
    if missing:
        raise UsageError(
            f"{name!r} can't be created from its name: these methods or defaults of fields are missing: "
            f"{', '.join(missing)}."
        )
    return builder_class()


def restore_builder(described: Mapping[str, Any]) -> Any:
    """Returns the builder that a run's config describes.

    Raises:
        UsageError: a part of it can't be found by name, such as a function defined in a script.
    """
    builder = make(described["agent"])
    config = restore_config(type(builder.config), described["config"])
    return builder.replace(config=config, **restore_fields(type(builder), described["builder"]))


def load_base() -> Any:
    """Returns the class `Builder`, the base class of every agent."""
    return importlib.import_module("acme_ext.builders.base").Builder


def name_of(builder: type) -> str:
    """Returns the name from which `load` finds a builder class.

    A class that can't be imported, such as one defined in a script or notebook, is described as `NAME of a script`,
    with its own `name`. Only that script can load it.
    """
    for name, (cls, _) in AGENTS.items():
        if (builder.__module__, builder.__qualname__) == (f"{__name__}.{name}", cls):
            return name
    name = importable_name(builder)
    for own, value in installed().items():
        if value == name:
            return own
    return name or f"{builder.name} of a script"


def __getattr__(attribute: str) -> Any:
    for name, (cls, _) in AGENTS.items():
        if cls == attribute:
            return load(name)
    if attribute in _OF_BASE:
        return getattr(importlib.import_module("acme_ext.builders.base"), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_OF_BASE, *(cls for cls, _ in AGENTS.values())})
