"""The agents, composed. `acme_ext.builders.DQN` and its siblings are imported when first asked for."""

import importlib
from typing import Any

from acme_ext.errors import UsageError, nearest

AGENTS: dict[str, tuple[str, str]] = {
    "dqn": ("DQN", "double DQN; dueling, n-step and prioritized replay as choices; discrete actions"),
    "rainbow": ("Rainbow", "DQN with six improvements, each of which can be switched off; discrete actions"),
    "apex": ("ApexDQN", "Ape-X DQN: many actors, a ladder of epsilons, prioritized replay; discrete actions"),
    "r2d2": ("R2D2", "recurrent Q-learning from a replay of sequences with stored state; discrete actions"),
    "sac": ("SAC", "soft actor-critic: twin critics, a temperature tuned to an entropy; continuous actions"),
    "td3": ("TD3", "twin critics, smoothed targets, delayed deterministic policy; continuous actions"),
    "d4pg": ("D4PG", "deterministic policy gradients, categorical critic, n-step returns; continuous actions"),
    "apex_dpg": ("ApexDPG", "deterministic policy gradients, many actors, prioritized replay; continuous actions"),
    "mpo": ("MPO", "maximum a posteriori policy optimisation, each step within bounds; continuous actions"),
    "dmpo": ("DMPO", "MPO with a categorical critic; continuous actions"),
    "impala": ("IMPALA", "actor-critic whose learner corrects for its actors' lag; LSTM as a choice; discrete actions"),
    "ppo": ("PPO", "clipped policy gradient, several epochs a batch; discrete and continuous actions"),
    "a2c": ("A2C", "advantage actor-critic, one step a batch; discrete and continuous actions"),
}
"""Name on the command line -> (class in `acme_ext.builders.NAME`, one line)."""


def check(name: str) -> None:
    """Raises UsageError if there is no agent of that name."""
    if name not in AGENTS:
        raise UsageError(f"there is no agent {name!r}: {nearest(name, AGENTS)}")


def load(name: str) -> Any:
    """Returns the builder class of an agent by its name on the command line; raises UsageError if there is none."""
    check(name)
    return getattr(importlib.import_module(f"acme_ext.builders.{name}"), AGENTS[name][0])


def __getattr__(attribute: str) -> Any:
    for name, (cls, _) in AGENTS.items():
        if cls == attribute:
            return load(name)
    if attribute == "Builder":
        return importlib.import_module("acme_ext.builders.base").Builder
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
