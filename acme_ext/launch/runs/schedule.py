"""Schedules of a run: when it is evaluated and when it is saved."""

import dataclasses

from acme_ext.config.fields import check_types
from acme_ext.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """When the agent is evaluated, and on how many episodes, with its evaluation policy and separate environments."""

    every: int = 5_000  # steps of the budget between evaluations; 0: only at the end
    episodes: int = 10  # episodes of each evaluation during the run
    final_episodes: int = 20  # episodes of the evaluation at the end
    num_envs: int = 10  # environments stepped in parallel; never more than there are episodes

    def __post_init__(self):
        check_types(self, "evaluation.")
        for name, least in (("every", 0), ("episodes", 1), ("final_episodes", 1), ("num_envs", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"evaluation.{name} is {getattr(self, name)}: it must be at least {least}.")

    def after(self, steps: int) -> int:
        """Returns the step of the first evaluation after a step; 0 if there are none during the run."""
        return (steps // self.every + 1) * self.every if self.every else 0

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

    every_s: float = 60.0  # seconds between checkpoints; 0: only at the end
    keep: int = 2  # how many of the newest checkpoints are kept
    replay: bool = True  # whether checkpoints include the replay's contents
    replay_every_s: float = 0.0  # minimum seconds between writes of the replay's contents; 0: in every checkpoint

    def __post_init__(self):
        check_types(self, "checkpoints.")
        for name in ("every_s", "replay_every_s"):
            if not (value := getattr(self, name)) >= 0:
                raise UsageError(f"checkpoints.{name} is {value}: it must be a number of seconds, at least 0.")
        if self.keep < 1:
            raise UsageError(f"checkpoints.keep is {self.keep}: at least 1 must be kept.")
