"""Settings that every agent has, such as normalized observations and exploration bonuses: their checks and effects."""

import dataclasses
import functools
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from acme_ext import specs
from acme_ext.acting.policy import Policy
from acme_ext.config.fields import check_declarations, check_made, check_types, make_checked
from acme_ext.config.types import hints_of
from acme_ext.errors import UsageError, nearest
from acme_ext.learning import normalize
from acme_ext.learning.averaged import averaged_core, averaged_policy
from acme_ext.learning.bonus import BONUSES, clipped_core
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.normalized import MAX_ABS, normalized_core, normalized_policy
from acme_ext.learning.prioritized import prioritized_core, prioritized_policy
from acme_ext.learning.shifted import shifted_core
from acme_ext.networks.recurrent import CORES
from acme_ext.networks.torsos import TORSOS
from acme_ext.replay.base import Replay
from acme_ext.replay.config import SequenceConfig, TransitionConfig, UnrollConfig
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.types import EnvironmentSpec, Tree

if TYPE_CHECKING:
    from acme_ext.builders.base import Builder, NetworkBuilder


def check_fields(builder: "Builder") -> None:
    """Raises UsageError if a field of the builder, or of its config, has an invalid value."""
    config, name = builder.config, type(builder).__name__
    if not isinstance(getattr(builder, "name", None), str):
        raise UsageError(f"{name} has no name: give the class one, as in `name = {name.lower()!r}`.")
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        shown = f"the class {config.__name__}" if isinstance(config, type) else repr(config)
        raise UsageError(f"the config of {name} is {shown}: it must be an object of a dataclass.")
    default = type(builder).__dataclass_fields__["config"].default
    if default is not dataclasses.MISSING and not isinstance(config, type(default)):
        raise UsageError(f"{name} takes a {type(default).__name__}, not a {type(config).__name__}.")
    if type(builder).make_replay.__module__ == "acme_ext.builders.base":
        for field in ("replay", "batch_size", "discount"):
            if not hasattr(config, field):
                raise UsageError(f"{type(config).__name__} has no field {field!r}, which {name} needs.")
    check_declarations(type(builder))
    check_declarations(type(config))
    if both := {f.name for f in dataclasses.fields(builder)} & {f.name for f in dataclasses.fields(config)}:
        raise UsageError(f"{name} and its config both have a field {min(both)!r}: rename one of them.")
    for field in ("sgd_steps_per_call", "batch_size"):
        if isinstance(value := getattr(config, field, 1), int) and value < 1:
            raise UsageError(f"{field} is {value}: it must be at least 1.")
    check_types(builder)
    if builder.average_rate is not None and not 0 < builder.average_rate <= 1:
        raise UsageError(f"average_rate is {builder.average_rate}: it must be above 0 and at most 1, or none.")
    if (weight := builder.intrinsic_weight) is not None:
        if weight < 0:
            raise UsageError(f"intrinsic_weight is {weight}: it must not be negative.")
        if builder.intrinsic is None:
            raise UsageError(f"intrinsic_weight is {weight}, but there is no bonus: set intrinsic too, as rnd.")
    for field, known in (("torso", TORSOS), ("core", CORES), ("intrinsic", BONUSES)):
        given = getattr(builder, field, None)
        if isinstance(given, str) and given not in known:
            raise UsageError(f"there is no {field} {given!r}: {nearest(given, known)}")


def make_networks(builder: "NetworkBuilder", spec: EnvironmentSpec) -> Any:
    """Calls the function in a builder's field `network` with the spec, config, torso and, if it has one, core."""
    parts = {name: getattr(builder, name) for name in ("torso", "core") if hasattr(builder, name)}
    *_, kind = typing.get_args(hints_of(type(builder)).get("network")) or (Any,)
    return make_checked("network", builder.network, kind, spec=spec, config=builder.config, **parts)


def check_actions(builder: "Builder", spec: EnvironmentSpec) -> None:
    """Raises UsageError if the agent can't take the environment's actions."""
    if builder.actions == "discrete":
        specs.num_actions(spec, type(builder).__name__)
    elif builder.actions == "continuous":
        specs.action_size(spec, type(builder).__name__)


def apply(
    builder: "Builder", spec: EnvironmentSpec, networks: Any, replay: Replay, policies: Sequence[Policy]
) -> tuple[LearnerCore, Sequence[Policy]]:
    """Returns the core, and the policies for training and evaluation, wrapped as the builder's settings require."""
    config, example = builder.config, specs.zeros(spec.observations, 1)
    for policy in policies:
        check_made(f"{type(builder).__name__}.make_policy", policy, Policy)
    clipping = None if builder.intrinsic is None else getattr(builder, "clipping", None)
    unclipped = builder if clipping is None else dataclasses.replace(builder, config=clipping[1])
    core = check_made(f"{type(builder).__name__}.make_core", unclipped.make_core(spec, networks), LearnerCore)
    if (most := getattr(config, "random_shift", None)) is not None:
        core = shifted_core(core, example, most)
    if getattr(config, "normalize_observations", False) and normalize.fields_of(example, example):
        max_abs = getattr(config, "max_abs_observation", MAX_ABS)
        core = normalized_core(core, example, max_abs)
        policies = [normalized_policy(policy, example, max_abs) for policy in policies]
    if builder.intrinsic is not None:
        core = _with_bonus(builder, core, replay, example)
        if clipping is not None:
            core = clipped_core(core, clipping[0])
    if replay.needs_largest_error:
        core, policies = prioritized_core(core), [prioritized_policy(policy) for policy in policies]
    if builder.average_rate is not None:
        core = averaged_core(core, builder.average_rate)
        policies = [averaged_policy(policy, evaluation=e) for policy, e in zip(policies, (False, True), strict=True)]
    return core, policies


def _with_bonus(builder: "Builder", core: LearnerCore, replay: Replay, observation: Tree) -> LearnerCore:
    """Returns a core that also learns from the bonus; raises UsageError if the agent doesn't support it."""
    intrinsic: Any = builder.intrinsic
    name = type(builder).__name__
    if hasattr(builder.config, "distillation"):
        raise UsageError(f"{name} already has an exploration bonus: intrinsic is only for agents without one.")
    if not builder.learns_rewards:
        raise UsageError(f"intrinsic is {intrinsic!r}: {name} doesn't learn from rewards, to which a bonus is added.")
    if not isinstance(builder.config.replay, TransitionConfig | SequenceConfig | UnrollConfig):
        raise UsageError(f"intrinsic is {intrinsic!r}: the replay of {name} can't carry a bonus.")
    if isinstance(replay, SequenceReplay) and jax.tree.leaves(replay.state):
        raise UsageError(
            f"intrinsic is {intrinsic!r}: {name} has a recurrent network with the environment's rewards as an input. "
            "Use ngu or agent57, or a network without memory."
        )
    bonus = BONUSES[intrinsic] if isinstance(intrinsic, str) else intrinsic
    if (weight := builder.intrinsic_weight) is not None:
        bonus = functools.partial(bonus, weight=weight)
    return make_checked("intrinsic", bonus, LearnerCore, core=core, observation=observation)
