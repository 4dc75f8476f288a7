"""Schedules of a run: when it is evaluated and when it is saved."""

import dataclasses

from acme_ext.config.fields import check_fields
from acme_ext.config.types import NonNegative, NonNegativeInt, PositiveInt


def next_multiple(steps: int, every: int) -> int:
    """Returns the first multiple of `every` above a step; 0 if `every` is 0."""
    return (steps // every + 1) * every if every else 0


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """When the agent is evaluated, and on how many episodes, with its evaluation policy and separate environments."""

    every: NonNegativeInt = 5_000  # steps of the budget between evaluations; 0: only at the end
    episodes: PositiveInt = 10  # episodes of each evaluation during the run
    final_episodes: PositiveInt = 20  # episodes of the evaluation at the end
    num_envs: PositiveInt = 10  # environments stepped in parallel; never more than there are episodes

    def __post_init__(self):
        check_fields(self, "evaluation.")

    def after(self, steps: int) -> int:
        """Returns the step of the first evaluation after a step; 0 if there are none during the run."""
        return next_multiple(steps, self.every)

    def resumed(self, steps: int, scheduled: int) -> int:
        """Returns the step of the next evaluation of a run that is resumed at a step; 0 if there are none.

        Args:
            steps: the steps of the run's budget so far.
            scheduled: the step for which the run scheduled it, perhaps with another `every`; 0 for none. If the run has
                reached this step without the evaluation, it is made at once.
        """
        return scheduled if self.every and 0 < scheduled <= steps else self.after(steps)


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """When a run saves a checkpoint; it always saves one at its end."""

    every_s: NonNegative = 60.0  # seconds between checkpoints; 0: only at the end
    keep: PositiveInt = 2  # how many of the newest checkpoints are kept
    replay: bool = True  # whether checkpoints include the replay's contents
    replay_every_s: NonNegative = 0.0  # minimum seconds between writes of the replay's contents; 0: in every checkpoint
    # Steps of the budget between checkpoints from which a resumed run goes on exactly as if it had not been stopped;
    # all environments begin new episodes there. 0: none.
    steps: NonNegativeInt = 0

    def __post_init__(self):
        check_fields(self, "checkpoints.")

    def after(self, steps: int) -> int:
        """Returns the step of the first checkpoint after a step that is scheduled by steps; 0 if there are none."""
        return next_multiple(steps, self.steps)
