"""The builders of all agents: `acme_ext.builders.DQN` and the others are imported on first use."""

import dataclasses
import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from acme_ext.errors import UsageError, nearest
from acme_ext.utils import naming

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

AGENTS: dict[str, tuple[str, str]] = {
    "dqn": ("DQN", "double DQN; dueling, n-step and prioritized replay as choices; discrete actions"),
    "rainbow": ("Rainbow", "DQN with six improvements, each of which can be switched off; discrete actions"),
    "apex": ("ApexDQN", "Ape-X DQN: many actors, a ladder of epsilons, prioritized replay; discrete actions"),
    "r2d2": ("R2D2", "recurrent Q-learning from a replay of sequences with stored state; discrete actions"),
    "r2d3": ("R2D3", "R2D2 that learns from demonstrations too; discrete actions"),
    "dqfd": ("DQfD", "DQN that learns from demonstrations first, and keeps to them by a margin; discrete actions"),
    "bdqn": ("BootstrappedDQN", "DQN with several heads, of which one acts for an episode; discrete actions"),
    "ngu": ("NGU", "R2D2 with a family of policies, from exploring by a bonus to exploiting; discrete actions"),
    "agent57": (
        "Agent57",
        "NGU with values of reward and bonus apart, and a bandit over its policies; discrete actions",
    ),
    "muzero": ("MuZero", "plans by a tree search in a learned model; Gumbel MuZero by default; discrete actions"),
    "alphazero": ("AlphaZero", "plans by a tree search in the rules of a board game; self-play"),
    "sac": ("SAC", "soft actor-critic: twin critics, a temperature tuned to an entropy; continuous actions"),
    "discrete_sac": ("DiscreteSAC", "SAC whose expectations over actions are exact; discrete actions"),
    "td3": ("TD3", "twin critics, smoothed targets, delayed deterministic policy; continuous actions"),
    "d4pg": ("D4PG", "deterministic policy gradients, categorical critic, n-step returns; continuous actions"),
    "apex_dpg": ("ApexDPG", "deterministic policy gradients, many actors, prioritized replay; continuous actions"),
    "mpo": ("MPO", "maximum a posteriori policy optimisation, each step within bounds; continuous actions"),
    "dmpo": ("DMPO", "MPO with a categorical critic; continuous actions"),
    "impala": ("IMPALA", "actor-critic whose learner corrects for its actors' lag; LSTM as a choice; discrete actions"),
    "ppo": ("PPO", "clipped policy gradient, several epochs a batch; discrete and continuous actions"),
    "rnd": ("RND", "PPO with a bonus for what is new and a value of its own for it; discrete and continuous actions"),
    "a2c": ("A2C", "advantage actor-critic, one step a batch; discrete and continuous actions"),
    "bc": ("BC", "behavioural cloning from recorded data; discrete and continuous actions"),
    "td3_bc": ("TD3BC", "TD3 that is drawn to recorded actions; continuous actions"),
    "iql": ("IQL", "implicit Q-learning from recorded data; continuous actions"),
    "cql": ("CQL", "SAC with critics that are low beyond recorded actions; continuous actions"),
    "crr": ("CRR", "clones those recorded actions that a critic finds better; continuous actions"),
    "discrete_cql": ("DiscreteCQL", "DQN with values that are low beyond recorded actions; discrete actions"),
    "bcq": ("BCQ", "DQN among the actions that recorded data would take; discrete actions"),
    "sqil": ("SQIL", "SAC that is rewarded for doing as demonstrations do; continuous actions"),
    "discrete_sqil": ("DiscreteSQIL", "DQN that is rewarded for doing as demonstrations do; discrete actions"),
}
"""Name on the command line -> (class in `acme_ext.builders.NAME`, one-line description)."""


def installed() -> dict[str, str]:
    """Returns the agents that other installed packages provide: a dictionary from name to `module:class`.

    A package declares its agents as entry points of the group `acme_ext.agents`. The names in `AGENTS` can't be
    replaced.
    """
    points = importlib.metadata.entry_points(group="acme_ext.agents")
    return {point.name: point.value for point in points if point.name not in AGENTS}


def check(name: str) -> None:
    """Raises UsageError if there is no agent with this name."""
    if ":" in name:
        load(name)
    elif name not in AGENTS and name not in (others := installed()):
        raise UsageError(
            f"there is no agent {name!r}: {nearest(name, [*AGENTS, *others])} An agent of your own is module:class."
        )


def load(name: str) -> Any:
    """Returns an agent's builder class, given its name on the command line or `module:class`.

    Raises:
        UsageError: there is no such agent.
    """
    if name in AGENTS:
        return getattr(importlib.import_module(f"acme_ext.builders.{name}"), AGENTS[name][0])
    if ":" not in name:
        check(name)
    found = naming.load(name if ":" in name else installed()[name])
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
            f"{name!r} can't be made by its name: it needs the methods that it lacks, and a default for each field "
            f"({', '.join(missing)})."
        )
    return builder_class()


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
    name = naming.name_of(builder)
    for own, value in installed().items():
        if value == name:
            return own
    return name or f"{builder.name} of a script"


def __getattr__(attribute: str) -> Any:
    for name, (cls, _) in AGENTS.items():
        if cls == attribute:
            return load(name)
    if attribute in ("Agent", "Builder", "Preset"):
        return getattr(importlib.import_module("acme_ext.builders.base"), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
