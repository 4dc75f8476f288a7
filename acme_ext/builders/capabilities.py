"""What an agent can do and needs, as attributes that its builder's class declares."""

from collections.abc import Collection, Mapping
from typing import ClassVar, Literal


class Capabilities:
    """The attributes of a builder's class that say what its agent can do and needs; an agent overrides some."""

    name: ClassVar[str]
    actions: ClassVar[Literal["discrete", "continuous", "any"]] = "any"
    """The actions that the agent supports; with `any`, its networks check the environment's actions."""
    wants_demos: ClassVar[bool] = False
    """Whether the agent needs demonstrations to learn."""
    wants_data: ClassVar[bool] = False
    """Whether the agent is made for recorded data; in an environment it learns from its own actions."""
    learns_rewards: ClassVar[bool] = True
    """Whether the agent learns from the environment's rewards."""
    has_bonus: ClassVar[bool] = False
    """Whether the agent has an exploration bonus of its own, so that it takes no other."""
    searches: ClassVar[bool] = False
    """Whether the agent acts by tree search, which needs mctx."""
    unexportable: ClassVar[str | None] = None
    """Why the agent's policy can't be exported, such as `it acts by a tree search`; None if it can."""
    parts: ClassVar[Mapping[str, Collection[str]]] = {}
    """The fields that hold a part of the network, as a function or by name, and the names that there are."""
