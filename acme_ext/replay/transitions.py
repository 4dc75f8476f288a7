"""Replay of n-step transitions: table, writer and dataset that agree."""

import dataclasses
from typing import ClassVar

from acme_ext.errors import UsageError
from acme_ext.replay import nstep, sinks
from acme_ext.replay.base import Replay, arguments_of
from acme_ext.replay.config import TransitionConfig
from acme_ext.replay.layout import Layout
from acme_ext.types import Array, EnvironmentSpec, Transition, Tree
from acme_ext.utils import checks


@dataclasses.dataclass(frozen=True)
class TransitionReplay(Replay):
    """n-step transitions in one Reverb table, each a flat row of bytes. Beside what every replay has (`Replay`):

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
        checks.at_least_one(self, "n_step", "burst")
        if not 0 <= self.discount <= 1:
            raise UsageError(f"discount is {self.discount}: it must lie in [0, 1].")

    @classmethod
    def of(
        cls,
        spec: EnvironmentSpec,
        config: TransitionConfig,
        *,
        batch_size: int,
        discount: float,
        max_abs_reward: float | None = None,
        priority: nstep.PriorityFn | None = None,
        extras: Tree = (),
    ) -> "TransitionReplay":
        """Returns the replay that a config describes; `priority` is left out where it is not prioritized."""
        return cls(
            spec,
            batch_size=batch_size,
            discount=discount,
            n_step=config.n_step,
            burst=config.write_burst,
            max_abs_reward=max_abs_reward,
            priority=priority if config.prioritized else None,
            extras=extras,
            **arguments_of(config),
        )

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
            priority=self.priority or (nstep.largest_error if self.prioritized else None),
            keep_extras=bool(self.extras),
            max_pending=max_pending,
            on_wait=on_wait,
        )

    def decode(self, rows: Array) -> Transition:
        """Takes rows of bytes `[B, nbytes]` apart; pure, for use inside a compiled step."""
        return self._layout.unpack(rows)
