"""When a run is evaluated, and when it is saved."""

import dataclasses

from acme_ext.errors import UsageError
from acme_ext.utils import checks


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """When and how long the agent is evaluated, on environments of its own, acting as it does in evaluation."""

    every: int = 5_000  # environment steps between evaluations; 0: only at the end
    episodes: int = 10  # of an evaluation on the way
    final_episodes: int = 20  # of the one at the end
    num_envs: int = 10  # environments stepped together; no more than episodes are made

    def __post_init__(self):
        checks.types(self, "evaluation.")
        for name, least in (("every", 0), ("episodes", 1), ("final_episodes", 1), ("num_envs", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"evaluation.{name} is {getattr(self, name)}: it must be at least {least}.")


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """When a run saves itself; it always does at its end."""

    every_s: float = 60.0  # seconds between checkpoints; 0: only at the end
    keep: int = 2  # checkpoints kept
    replay: bool = True  # whether the replay's contents are part of it
    replay_every_s: float = 0.0  # least seconds from one time that these are written to the next; 0: each time

    def __post_init__(self):
        checks.types(self, "checkpoints.")
        for name in ("every_s", "replay_every_s"):
            if not (value := getattr(self, name)) >= 0:
                raise UsageError(f"checkpoints.{name} is {value}: it must be a number of seconds, at least 0.")
        if self.keep < 1:
            raise UsageError(f"checkpoints.keep is {self.keep}: at least 1 must be kept.")
