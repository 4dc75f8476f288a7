"""What the nodes of a program are: the table of their roles, and the identity of a node.

Everything that treats nodes by their group reads this table: what starts, places, restarts and stops them, what gives
them devices, and the coordinator.
"""

import dataclasses
import re
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Role:
    """What all nodes of one group have in common; the defaults are those of a group that a user adds."""

    name: str
    """The name of the group."""
    server: bool = False
    """Whether other nodes call its nodes, which therefore keep their addresses, and stop after all other nodes."""
    resumable: bool = True
    """Whether a node that died can restart alone. If not, it holds state of the run: a last save needs it, and without
    it the whole program restarts from its last checkpoint."""
    movable: bool = False
    """Whether a program that restarts goes on while its nodes still wait for a host."""
    writes: bool = False
    """Whether its nodes write to the run directory."""
    computes: bool = False
    """Whether its nodes can be given accelerators."""
    limited: bool = False
    """Whether its nodes use only as many threads as they have CPUs. On one machine, all nodes of such groups share the
    CPUs equally, unless they ask for some."""
    cpus: float = 1.0
    """The CPUs that each of its nodes asks Ray for by default."""


ROLES = {
    role.name: role
    for role in (
        Role("coordinator", server=True, resumable=False, writes=True, cpus=0.1),
        Role("replay", server=True, resumable=False, writes=True),
        Role("learner", server=True, resumable=False, writes=True, computes=True),
        Role("inference", server=True, computes=True),
        Role("evaluator", movable=True, computes=True, limited=True),
        Role("actor", movable=True, computes=True, limited=True),
    )
}
"""The roles of the program's own nodes by their names. Servers stop in the reverse order."""

SERVERS = tuple(name for name, role in reversed(ROLES.items()) if role.server)
"""Groups of servers, in the order in which they are stopped, after all other groups."""


_TEXT = re.compile(r"(.+?)(?:[- ](\d+))?(?:, start (\d+))?")


def role_of(group: str) -> Role:
    """Returns the role of a group of nodes: one of the program's own, or that of a group which a user has added."""
    return ROLES.get(group) or Role(group)


@dataclasses.dataclass(frozen=True)
class NodeId:
    """The identity of a node.

    It has two text forms. `name` is for people: in messages, names of log files and Ray's dashboard. `str()` is for
    the coordinator: in reports and, as the `key` without the start, in checkpoints.

    Attributes:
        role: its group.
        index: its number in the group, from 0; None for a node that is called by its group alone.
        start: how often it was started before; None for the node regardless of its starts.
    """

    role: str
    index: int | None = None
    start: int | None = None

    @classmethod
    def of(cls, role: str, index: int, count: int) -> "NodeId":
        """Returns the identity of a node in a group of `count`; the only one of a group has no number."""
        return cls(role, None if count == 1 else index)

    @classmethod
    def parse(cls, text: str) -> "NodeId":
        """Returns the node that a text form names."""
        found = _TEXT.fullmatch(text)
        assert found is not None
        role, *numbers = found.groups()
        return cls(role, *(number if number is None else int(number) for number in numbers))

    @property
    def name(self) -> str:
        """The name for people, such as `actor-1`, `learner` or `actor-1, start 2`."""
        return self._text("-")

    @property
    def key(self) -> str:
        """The name for the coordinator without the start, such as `actor 1` or `learner`."""
        return str(self.unstarted)

    @property
    def unstarted(self) -> "NodeId":
        """The node regardless of its starts."""
        return dataclasses.replace(self, start=None)

    @property
    def numbered(self) -> "NodeId":
        """The node regardless of its starts, and of whether the only node of a group is called by its number 0."""
        return NodeId(self.role, self.index or 0)

    def __str__(self) -> str:
        return self._text(" ")

    def _text(self, separator: str) -> str:
        index = "" if self.index is None else f"{separator}{self.index}"
        start = "" if self.start is None else f", start {self.start}"
        return f"{self.role}{index}{start}"


def nodes_of(groups: Mapping[str, int]) -> list[NodeId]:
    """Returns the identity of each node, given the number of nodes in each group."""
    return [NodeId.of(group, index, count) for group, count in groups.items() for index in range(count)]
