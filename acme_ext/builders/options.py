"""Settings that every agent has, such as normalized observations and exploration bonuses: their checks and effects.

The argument `builder` of these functions is a `Builder`, which this module doesn't import, since it is imported there.
"""

import dataclasses
import functools
import typing
from collections.abc import Sequence
from typing import Any, Literal

import jax

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.config.agent import AgentConfig
from acme_ext.config.fields import check_declarations, check_fields, check_made, make_checked
from acme_ext.config.types import hints_of
from acme_ext.errors import UsageError, nearest
from acme_ext.learning import normalize
from acme_ext.learning.averaged import averaged_core, averaged_policy
from acme_ext.learning.bonus import BONUSES, Bonus, clipped_core
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.normalized import normalized_core, normalized_policy
from acme_ext.learning.prioritized import prioritized_core, prioritized_policy
from acme_ext.learning.shifted import shifted_core
from acme_ext.replay.base import Replay
from acme_ext.replay.config import SequenceConfig, TransitionConfig, UnrollConfig
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.types import EnvironmentSpec


def check_builder(builder: Any, *, own_replay: bool) -> None:
    """Raises UsageError if a field of a builder, or of its config, has an invalid value.

    Args:
        builder: a `Builder`.
        own_replay: whether the builder's class makes the replay, and not `Builder`.
    """
    cls, name, config = type(builder), type(builder).__name__, builder.config
    if not isinstance(getattr(cls, "name", None), str):
        raise UsageError(f"{name} has no name: give the class one, as in `name = {name.lower()!r}`.")
    if not (dataclasses.is_dataclass(config) and isinstance(config, AgentConfig)):
        shown = f"the class {config.__name__}" if isinstance(config, type) else repr(config)
        raise UsageError(
            f"the config of {name} is {shown}: it must be an object of a dataclass that derives from "
            "acme_ext.config.AgentConfig."
        )
    default = cls.__dataclass_fields__["config"].default
    if default is not dataclasses.MISSING and not isinstance(config, type(default)):
        raise UsageError(f"{name} takes a {type(default).__name__}, not a {type(config).__name__}.")
    for field in () if own_replay else ("replay", "batch_size", "discount"):
        if not hasattr(config, field):
            raise UsageError(f"{type(config).__name__} has no field {field!r}, which {name} needs.")
    check_declarations(cls)
    check_declarations(type(config))
    if both := {f.name for f in dataclasses.fields(builder)} & {f.name for f in dataclasses.fields(config)}:
        raise UsageError(f"{name} and its config both have a field {min(both)!r}: rename one of them.")
    check_fields(builder)
    if (weight := builder.intrinsic_weight) is not None and builder.intrinsic is None:
        raise UsageError(f"intrinsic_weight is {weight}, but there is no bonus: set intrinsic too, as rnd.")
    for field, known in {"intrinsic": BONUSES, **builder.parts}.items():
        if isinstance(given := getattr(builder, field), str) and given not in known:
            raise UsageError(f"there is no {field} {given!r}: {nearest(given, known)}")


def check_actions(actions: Literal["discrete", "continuous", "any"], spec: EnvironmentSpec, name: str) -> None:
    """Raises UsageError if an agent for such actions, of this name, can't take the environment's actions."""
    if actions == "discrete":
        specs.num_actions(spec, name)
    elif actions == "continuous":
        specs.action_size(spec, name)


def make_networks(builder: Any, spec: EnvironmentSpec) -> Any:
    """Calls the function in a `NetworkBuilder`'s field `network` with the spec, its config and its parts."""
    parts = {name: getattr(builder, name) for name in builder.parts}
    *_, kind = typing.get_args(hints_of(type(builder)).get("network")) or (Any,)
    return make_checked("network", builder.network, kind, spec=spec, config=builder.config, **parts)


def _bonus_of(builder: Any, replay: Replay) -> Bonus | None:
    """Returns a builder's exploration bonus, or None; raises UsageError if the agent doesn't support one."""
    name, given = type(builder).__name__, builder.intrinsic
    if given is None:
        return None
    if builder.has_bonus:
        raise UsageError(f"{name} already has an exploration bonus: intrinsic is only for agents without one.")
    if not builder.learns_rewards:
        raise UsageError(f"intrinsic is {given!r}: {name} doesn't learn from rewards, to which a bonus is added.")
    if not isinstance(builder.config.replay, TransitionConfig | SequenceConfig | UnrollConfig):
        raise UsageError(f"intrinsic is {given!r}: the replay of {name} can't carry a bonus.")
    if isinstance(replay, SequenceReplay) and jax.tree.leaves(replay.state):
        raise UsageError(
            f"intrinsic is {given!r}: {name} has a recurrent network with the environment's rewards as an input. "
            "Use ngu or agent57, or a network without memory."
        )
    bonus, weight = BONUSES[given] if isinstance(given, str) else given, builder.intrinsic_weight
    return bonus if weight is None else functools.partial(bonus, weight=weight)


def apply(
    builder: Any, spec: EnvironmentSpec, networks: Any, replay: Replay, policies: Sequence[Policy]
) -> tuple[LearnerCore, Sequence[Policy]]:
    """Returns a builder's core, and its policies for training and evaluation, wrapped as its settings require."""
    name, example = type(builder).__name__, specs.zeros(spec.observations, 1)
    config: AgentConfig = builder.config
    for policy in policies:
        check_made(f"{name}.make_policy", policy, Policy)
    bonus = _bonus_of(builder, replay)
    clipping = None if bonus is None else builder.clipping
    unclipped = builder if clipping is None else dataclasses.replace(builder, config=clipping[1])
    core = check_made(f"{name}.make_core", unclipped.make_core(spec, networks), LearnerCore)
    if config.random_shift is not None:
        core = shifted_core(core, example, config.random_shift)
    if config.normalize_observations and normalize.fields_of(example, example):
        core = normalized_core(core, example, config.max_abs_observation)
        policies = [normalized_policy(policy, example, config.max_abs_observation) for policy in policies]
    if bonus is not None:
        core = make_checked("intrinsic", bonus, LearnerCore, core=core, observation=example)
    if clipping is not None:
        core = clipped_core(core, clipping[0])
    if replay.needs_largest_error:
        core, policies = prioritized_core(core), [prioritized_policy(policy) for policy in policies]
    if (rate := builder.average_rate) is not None:
        core = averaged_core(core, rate)
        policies = [averaged_policy(policy, evaluation=e) for policy, e in zip(policies, (False, True), strict=True)]
    return core, policies
