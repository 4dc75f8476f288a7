"""Search spaces: fields of an agent's config, and their ranges."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from acme_ext import builders
from acme_ext.config.assignments import configure_builder, split_assignments
from acme_ext.errors import UsageError

_FORM = (
    "write float:LOW:HIGH or log:LOW:HIGH, int:LOW:HIGH or logint:LOW:HIGH for whole numbers, or choice:A:B:... for "
    "values as --set takes them"
)
_DIGITS = 4  # significant digits of a sampled number


class Dimension(NamedTuple):
    """The values that a search can choose for one field."""

    kind: str  # float, log, int, logint or choice
    values: tuple[str, ...]  # the ends of a range, or the choices, as text
    unit: str = ""  # the unit of the values

    @property
    def text(self) -> str:
        """The dimension in the form that `parse` reads."""
        return ":".join((self.kind, *self.values))

    @property
    def ends(self) -> tuple[float, float]:
        """The lower and upper end of a range."""
        low, high = self.values
        return float(low), float(high)

    @property
    def logarithmic(self) -> bool:
        """Whether values are sampled uniformly on a logarithmic scale."""
        return self.kind in ("log", "logint")

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are sampled."""
        return self.kind in ("int", "logint")

    def draw(self, name: str, trial: Any) -> str:
        """Returns the value that an `optuna.Trial` suggests for the field `name`, in the form for `--set`."""
        if self.kind == "choice":
            return trial.suggest_categorical(name, self.values)
        low, high = self.ends
        if self.whole:
            return str(trial.suggest_int(name, int(low), int(high), log=self.logarithmic))
        return self.written(trial.suggest_float(name, low, high, log=self.logarithmic))

    def written(self, value: Any) -> str:
        """Returns a sampled value in the form for `--set`."""
        return str(value) if self.kind == "choice" or self.whole else f"{value:.{_DIGITS}g}"

    @property
    def middle(self) -> str:
        """The median of random samples; for choices, the middle one in their order."""
        if self.kind == "choice":
            return self.values[len(self.values) // 2]
        low, high = self.ends
        value = math.sqrt(low * high) if self.logarithmic else (low + high) / 2
        return str(round(value)) if self.whole else self.written(value)


Space = dict[str, Dimension]


def parse(text: str, unit: str = "") -> Dimension:
    """Parses a text such as `log:1e-5:1e-2` as a dimension; raises UsageError if it is not valid."""
    kind, *values = text.split(":")
    if kind not in ("float", "log", "int", "logint", "choice"):
        raise UsageError(f"{text!r} is not a range: {_FORM}.")
    dimension = Dimension(kind, tuple(values), unit)
    if kind == "choice":
        if len(set(values)) != len(values) or len(values) < 2:
            raise UsageError(f"{text!r} is not a range: a choice needs at least two different values.")
        return dimension
    try:
        low, high = dimension.ends
    except ValueError:
        raise UsageError(f"{text!r} is not a range: {_FORM}.") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"{text!r} is not a range: its ends must be numbers, the lower one first.")
    if dimension.logarithmic and low <= 0:
        raise UsageError(f"{text!r} is not a range: a logarithmic range must begin above 0.")
    if dimension.whole and (low != int(low) or high != int(high)):
        raise UsageError(f"{text!r} is not a range: its ends must be whole numbers.")
    return dimension


_STEP, _RETURN = "a learner step", "of returns"
FIELDS: dict[str, Dimension] = {
    name: parse(text, unit)
    for name, text, unit in (
        ("learning_rate", "log:1e-5:1e-2", _STEP),
        ("policy_learning_rate", "log:1e-5:1e-2", _STEP),
        ("critic_learning_rate", "log:1e-5:1e-2", _STEP),
        ("discount", "choice:0.95:0.98:0.99:0.995:0.999", "a step of the environment"),
        ("batch_size", "choice:32:64:128:256", "items"),
        ("hidden_sizes", "choice:32,32:64,64:128,128:256,256", "units by layer"),
        ("target_rate", "log:1e-3:1", "share of an update"),
        ("target_period", "logint:1:1000", "learner steps"),
        ("replay.n_step", "choice:1:3:5:10", "steps of the environment"),
        ("n_step", "choice:1:3:5:10", "steps of the environment"),
        ("replay.samples_per_insert", "choice:4:8:16:32:64", "items learned from for each"),
        ("replay.length", "choice:16:32:64:128:256", "steps of an unroll"),
        ("epsilon_decay_steps", "logint:1000:100000", "steps of the environment"),
        ("epsilon_end", "float:0:0.2", "probability"),
        ("epsilon_base", "float:0.1:0.8", "probability"),
        ("noise_stddev", "float:0.05:0.5", "of actions in [-1, 1]"),
        ("target_entropy_per_value", "float:-2:0", "nats"),
        ("target_entropy_share", "float:0.1:0.98", "of the greatest entropy"),
        ("init_temperature", "log:0.01:2", f"{_RETURN} a nat"),
        ("entropy_coef", "log:1e-5:0.1", f"{_RETURN} a nat"),
        ("value_coef", "float:0.1:1", "share of the loss"),
        ("gae_lambda", "choice:0.8:0.9:0.95:0.98:1", "a step of the environment"),
        ("clip", "float:0.1:0.4", "of the ratio"),
        ("num_epochs", "int:1:20", "times each step"),
        ("epsilon_mean", "log:1e-4:1e-1", "nats a dimension"),
        ("epsilon_stddev", "log:1e-7:1e-4", "nats a dimension"),
        ("expectile", "choice:0.5:0.7:0.8:0.9:0.95", "share"),
        ("inverse_temperature", "float:0.5:10", "of advantages"),
        ("imitation_alpha", "log:0.5:10", "weight of values"),
        ("penalty_coef", "log:0.1:20", "weight of the penalty"),
        ("threshold", "float:0.05:0.6", "of the likeliest action's probability"),
    )
}
"""The default range of each field, with the unit of its values."""

_Q_LEARNING = ("learning_rate", "discount", "batch_size", "hidden_sizes", "target_rate", "replay.n_step")
_ADVANTAGE = ("learning_rate", "discount", "gae_lambda", "entropy_coef", "value_coef", "replay.length")
_DPG = ("policy_learning_rate", "critic_learning_rate", "discount", "target_period", "replay.n_step", "noise_stddev")
_TWIN = ("learning_rate", "discount", "batch_size", "hidden_sizes", "target_rate")
AGENTS: dict[str, tuple[str, ...]] = {
    "dqn": (*_Q_LEARNING, "epsilon_decay_steps", "epsilon_end"),
    "rainbow": (*_Q_LEARNING, "replay.samples_per_insert"),
    "apex": (*_Q_LEARNING, "replay.samples_per_insert"),
    "discrete_cql": (*_Q_LEARNING, "penalty_coef"),
    "bcq": (*_Q_LEARNING, "threshold"),
    "r2d2": ("learning_rate", "discount", "batch_size", "target_period", "n_step", "epsilon_base"),
    "ppo": (*_ADVANTAGE, "clip", "num_epochs"),
    "a2c": _ADVANTAGE,
    "impala": ("learning_rate", "discount", "entropy_coef", "value_coef", "replay.length"),
    "sac": (*_TWIN, "target_entropy_per_value", "init_temperature"),
    "discrete_sac": (*_TWIN, "target_entropy_share", "replay.n_step"),
    "cql": (*_TWIN, "penalty_coef"),
    "td3": (*_TWIN, "noise_stddev"),
    "td3_bc": (*_TWIN, "imitation_alpha"),
    "iql": (*_TWIN, "expectile", "inverse_temperature"),
    "d4pg": _DPG,
    "apex_dpg": _DPG,
    "mpo": (
        "policy_learning_rate",
        "critic_learning_rate",
        "discount",
        "target_period",
        "epsilon_mean",
        "epsilon_stddev",
    ),
}
"""The fields that a search varies by default, for each agent. An agent that isn't listed has the fields of the agent
that its class is derived from, or else all fields of `FIELDS` that its config has."""


def of_agent(builder: Any, given: Iterable[str], fixed: Mapping[str, str]) -> Space:
    """Returns the search space of a builder.

    Args:
        builder: the agent's builder, with the fixed fields set.
        given: `NAME=RANGE` texts, which replace default ranges or add fields; `NAME=fixed` excludes a field.
        fixed: fields that the user has set, which are not searched.

    Raises:
        UsageError: a text is not a range, a field doesn't exist or can't have these values, or the space is empty.
    """
    ranges = split_assignments(given)
    for name in ranges:
        if name in fixed:
            raise UsageError(f"{name} is given by both --set and --space: give only one.")
    space = {name: FIELDS[name] for name in _usual(builder) if name not in fixed and name not in ranges}
    space = {name: dimension for name, dimension in space.items() if _takes(builder, name, dimension) is None}
    for name, text in ranges.items():
        if text != "fixed":
            space[name] = parse(text, FIELDS[name].unit if name in FIELDS else "")
            if wrong := _takes(builder, name, space[name]):
                raise wrong
    if not space:
        raise UsageError(
            "there is nothing to search: give fields and their ranges, as --space learning_rate=log:1e-5:1e-2."
        )
    return space


def _usual(builder: Any) -> tuple[str, ...]:
    for cls in type(builder).__mro__:
        if issubclass(cls, builders.load_base()) and builders.name_of(cls) in AGENTS:
            return AGENTS[builders.name_of(cls)]
    return tuple(FIELDS)


def _takes(builder: Any, name: str, dimension: Dimension) -> UsageError | None:
    """Returns an error if a field can't have the values of a dimension, or None."""
    try:
        for value in dict.fromkeys((*dimension.values, dimension.middle)):
            configure_builder(builder, {name: value})
    except UsageError as error:
        return error
    return None


def table(space: Mapping[str, Dimension]) -> list[str]:
    """Returns the space as lines, one for each field."""
    width, texts = max(map(len, space)), max(len(dimension.text) for dimension in space.values())
    return [f"  {name:<{width}}  {d.text:<{texts}}  {d.unit}".rstrip() for name, d in space.items()]


def draw(space: Mapping[str, Dimension], trial: Any) -> dict[str, str]:
    """Returns the values that an `optuna.Trial` suggests for all fields, in the form for `--set`."""
    return {name: dimension.draw(name, trial) for name, dimension in space.items()}


def middle(space: Mapping[str, Dimension]) -> dict[str, str]:
    """Returns the middle of each dimension."""
    return {name: dimension.middle for name, dimension in space.items()}
