"""Replay of n-step transitions: table, writer and dataset that agree."""

import dataclasses
from typing import ClassVar

from acme_ext.errors import UsageError
from acme_ext.replay import nstep, sinks
from acme_ext.replay.base import RowReplay
from acme_ext.replay.layout import Layout
from acme_ext.types import Array, Transition


@dataclasses.dataclass(frozen=True)
class TransitionReplay(RowReplay):
    """n-step transitions in one Reverb table, each a flat row of bytes. Beside what every replay has (`RowReplay`):

    Attributes:
        n_step: steps a transition spans; fewer at an episode's end.
        discount: gamma of one step; `batch.discount` arrives complete.
        max_abs_reward: clips each reward before the n-step sum; None leaves it.
        burst: transitions that are built and sent together, about.
    """

    item: ClassVar[str] = "transition"

    priority: nstep.PriorityFn | None = None
    table: str = "transitions"
    n_step: int = 1
    discount: float = 0.99
    max_abs_reward: float | None = None
    burst: int = 16

    def __post_init__(self):
        super().__post_init__()
        self._at_least_one("n_step", "burst")
        if not 0 <= self.discount <= 1:
            raise UsageError(f"discount is {self.discount}: it must lie in [0, 1].")

    @property
    def _layout(self) -> Layout:
        return Layout(nstep.transition_spec(self.spec, self.extras))

    def writer(
        self, client, num_envs: int, *, max_pending: int | None = None, on_wait: sinks.OnWait = lambda: None
    ) -> nstep.NStepWriter:
        """Returns a writer for `num_envs` environments that step together; see NStepWriter for the rest."""
        return nstep.NStepWriter(
            self._layout,
            self._sink(client),
            num_envs=num_envs,
            n_step=self.n_step,
            discount=self.discount,
            burst=self.burst,
            max_abs_reward=self.max_abs_reward,
            priority=self.priority,
            keep_extras=bool(self.extras),
            max_pending=max_pending,
            on_wait=on_wait,
        )

    def decode(self, rows: Array) -> Transition:
        """Takes rows of bytes `[B, nbytes]` apart; pure, for use inside a compiled step."""
        return self._layout.unpack(rows)
