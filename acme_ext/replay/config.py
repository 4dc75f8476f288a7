"""The replay settings of agents: each agent's config has one of these configs as its field `replay`.

On the command line, they are set with dotted names: `--set replay.prioritized=true`.
"""

import dataclasses
from typing import Any, Literal

from acme_ext.config.fields import Checked
from acme_ext.config.types import NonNegative, NonNegativeInt, Positive, PositiveInt, Share
from acme_ext.errors import UsageError
from acme_ext.replay.limits import RateLimit

Order = Literal["uniform", "prioritized", "queue"]
"""How a replay's items are sampled; see `Replay`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling(Checked):
    """The settings that a replay takes from its config as they are."""

    max_size: PositiveInt = 100_000  # items; the oldest are removed first
    priority_exponent: NonNegative = 0.6  # alpha; Schaul et al. 2016, table 3
    priority_offset: NonNegative = 1e-3  # epsilon of p = |TD error| + epsilon; Schaul et al. 2016, section 3.3
    importance_exponent: Share = 0.4  # initial beta; Schaul et al. 2016, table 3
    importance_exponent_end: Share = 1.0  # final beta; Schaul et al. 2016, section 3.4
    importance_anneal_steps: PositiveInt = 10_000  # learner steps from beta's initial to its final value
    demo_ratio: Share = 0.25  # probability that a batch's item is a demonstration, in runs with demonstrations


@dataclasses.dataclass(frozen=True)
class ReplayConfig(Sampling):
    """Settings of a replay with random sampling. An item is a transition or a sequence."""

    min_size: PositiveInt = 1_000  # items before learning starts
    samples_per_insert: Positive = 32.0  # samples per inserted item: batch_size / environment steps per update
    prioritized: bool = False  # proportional prioritization by |TD error|; Schaul et al. 2016
    priority_offset: Positive = 1e-3

    @property
    def steps_before_learning(self) -> int:
        """The approximate number of environment steps for the first `min_size` items."""
        return self.min_size * self.arguments().get("period", 1)

    def arguments(self) -> dict[str, Any]:
        """Returns the fields of `Replay` that this config sets; see `Replay.of`."""
        return {
            "max_size": self.max_size,
            "limit": RateLimit(self.samples_per_insert, self.min_size),
            "order": "prioritized" if self.prioritized else "uniform",
            "priority_exponent": self.priority_exponent,
            "priority_offset": self.priority_offset,
            "importance_exponent": self.importance_exponent,
            "importance_exponent_end": self.importance_exponent_end,
            "importance_anneal_steps": self.importance_anneal_steps,
            "demo_ratio": self.demo_ratio,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransitionSampling(Sampling):
    """The settings that a replay of transitions takes from its config as they are."""

    n_step: PositiveInt = 1  # steps that a transition spans; fewer at an episode's end
    # Transitions per item of the table, written and sampled together, if sampling is uniform. None: depends on the
    # number of environments; 1: every transition is an item.
    rows_per_item: PositiveInt | None = None


@dataclasses.dataclass(frozen=True)
class TransitionConfig(TransitionSampling, ReplayConfig):
    """Replay of n-step transitions."""

    write_burst: PositiveInt = 32  # transitions written together

    def arguments(self) -> dict[str, Any]:
        own = {"n_step": self.n_step, "burst": self.write_burst, "rows_per_item": self.rows_per_item}
        return {**super().arguments(), **own}


@dataclasses.dataclass(frozen=True)
class SequenceConfig(ReplayConfig):
    """Replay of overlapping sequences, with the recurrent state stored at their beginning."""

    max_size: PositiveInt = 10_000
    min_size: PositiveInt = 100
    samples_per_insert: Positive = 16.0
    length: PositiveInt = 24  # steps of a sequence that are learned from
    burn_in: NonNegativeInt = 8  # steps before them that update the stored recurrent state
    period: PositiveInt = 12  # steps between the starts of two sequences: they overlap by length - period

    def __post_init__(self):
        super().__post_init__()
        if self.period > self.length:
            raise UsageError(
                f"period is {self.period}: it must be at most the length, {self.length}, so that every step is learned "
                "from."
            )

    def arguments(self) -> dict[str, Any]:
        own = {"length": self.burn_in + self.length, "period": self.period, "burn_in": self.burn_in}
        return {**super().arguments(), **own, "cross_episodes": False}


@dataclasses.dataclass(frozen=True)
class UnrollConfig(Checked):
    """A first-in, first-out queue of unrolls, each of which is used once for learning."""

    max_size: PositiveInt = 8  # unrolls that can wait for the learner; bounds their age
    length: PositiveInt = 20  # steps of an unroll

    def arguments(self) -> dict[str, Any]:
        """Returns the fields of `Replay` that this config sets; see `Replay.of`."""
        sizes = {"max_size": self.max_size, "length": self.length, "period": self.length}
        return {**sizes, "order": "queue", "table": "unrolls", "cross_episodes": True}
