"""Settings that every agent has, such as normalized observations and exploration bonuses: their checks and effects."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from acme_ext.acting.policy import Policy
from acme_ext.config.agent import AgentConfig
from acme_ext.config.fields import check_declarations, make_checked
from acme_ext.errors import UsageError
from acme_ext.learning import normalize
from acme_ext.learning.averaged import averaged_core, averaged_policy
from acme_ext.learning.bonus import Bonus, clipped_core
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.normalized import normalized_core, normalized_policy
from acme_ext.learning.prioritized import prioritized_core, prioritized_policy
from acme_ext.learning.shifted import shifted_core
from acme_ext.replay.base import Replay
from acme_ext.types import Array, Tree


def check_config(name: str, config: Any, default: Any) -> None:
    """Raises UsageError if an object can't be the config of a builder.

    Args:
        name: the builder's name, for the message.
        config: the object.
        default: the builder's default config, or `dataclasses.MISSING`.
    """
    if not (dataclasses.is_dataclass(config) and isinstance(config, AgentConfig)):
        shown = f"the class {config.__name__}" if isinstance(config, type) else repr(config)
        raise UsageError(
            f"the config of {name} is {shown}: it must be an object of a dataclass that derives from "
            "acme_ext.config.agent.AgentConfig."
        )
    if default is not dataclasses.MISSING and not isinstance(config, type(default)):
        raise UsageError(f"{name} takes a {type(default).__name__}, not a {type(config).__name__}.")
    check_declarations(type(config))


def apply(
    core: LearnerCore,
    policies: Sequence[Policy],
    config: AgentConfig,
    replay: Replay,
    observation: Tree,
    *,
    bonus: Bonus | None = None,
    clip: Callable[[Array], Array] | None = None,
    average_rate: float | None = None,
) -> tuple[LearnerCore, Sequence[Policy]]:
    """Returns the core, and the policies for training and evaluation, wrapped as an agent's settings require.

    Args:
        core: the agent's learner core.
        policies: the policies for training and for evaluation.
        config: the agent's config.
        replay: the agent's replay.
        observation: an example `[1, ...]`.
        bonus: the exploration bonus.
        clip: clips the rewards before the bonus is added; None if the core does it, or nothing.
        average_rate: see `Builder`.
    """
    if config.random_shift is not None:
        core = shifted_core(core, observation, config.random_shift)
    if config.normalize_observations and normalize.fields_of(observation, observation):
        core = normalized_core(core, observation, config.max_abs_observation)
        policies = [normalized_policy(policy, observation, config.max_abs_observation) for policy in policies]
    if bonus is not None:
        core = make_checked("intrinsic", bonus, LearnerCore, core=core, observation=observation)
    if clip is not None:
        core = clipped_core(core, clip)
    if replay.needs_largest_error:
        core, policies = prioritized_core(core), [prioritized_policy(policy) for policy in policies]
    if average_rate is not None:
        core = averaged_core(core, average_rate)
        policies = [averaged_policy(policy, evaluation=e) for policy, e in zip(policies, (False, True), strict=True)]
    return core, policies
