"""SQIL's hyperparameters."""

import dataclasses

from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.agents.sac.config import SACConfig
from acme_ext.config.types import Positive
from acme_ext.errors import UsageError
from acme_ext.replay.config import TransitionConfig


@dataclasses.dataclass(frozen=True)
class SQILConfig(SACConfig):
    """SQIL (Reddy et al. 2020) for continuous actions, with SAC's other hyperparameters."""

    # Target of the policy's entropy, nats per action dimension; ours: with -1, some runs lose what they have learned.
    target_entropy_per_value: float = -2.0
    # Initial weight of the entropy; as in the code of SAC's authors. With SAC's 0.1 the seeds 0, 1 and 2 of
    # `sqil-pendulum` ended at -227, -209 and -181.
    init_temperature: Positive = 1.0
    # Half of a batch are demonstrations; Reddy et al. 2020, section 2.
    replay: TransitionConfig = dataclasses.replace(SACConfig.replay, demo_ratio=0.5)

    def __post_init__(self):
        super().__post_init__()
        check_replay(self.replay)


@dataclasses.dataclass(frozen=True)
class DiscreteSQILConfig(DQNConfig):
    """SQIL (Reddy et al. 2020) for discrete actions, with DQN's other hyperparameters."""

    replay: TransitionConfig = TransitionConfig(demo_ratio=0.5)  # Reddy et al. 2020, section 2

    def __post_init__(self):
        super().__post_init__()
        check_replay(self.replay)


def check_replay(replay: TransitionConfig) -> None:
    """Raises UsageError unless transitions have 1 step and batches hold both demonstrations and own experience."""
    if replay.n_step != 1:
        raise UsageError(f"replay.n_step is {replay.n_step}: SQIL's rewards are for single steps, so it must be 1.")
    if not 0 < replay.demo_ratio < 1:
        raise UsageError(
            f"replay.demo_ratio is {replay.demo_ratio}: SQIL needs both demonstrations and its own experience, so it "
            "must be above 0 and below 1, such as 0.5."
        )
