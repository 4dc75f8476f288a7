"""Checks an experiment before anything runs: that the parts of its agent fit each other and the environment.

The parts are checked by their shapes and dtypes alone.

Most mistakes in a network, policy or loss of one's own would otherwise be errors somewhere inside JAX, or broadcast to
other numbers without an error.
"""

import bisect
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from dm_env.specs import DiscreteArray

import acme_ext
from acme_ext import specs
from acme_ext.acting.policy import Context, Policy, StateAndMemory
from acme_ext.acting.variables import POLICY
from acme_ext.builders.base import Agent, Builder
from acme_ext.config.fields import function_name
from acme_ext.config.values import Named
from acme_ext.errors import UsageError
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.learning.core import LearnerCore
from acme_ext.networks.recurrent import RecurrentNetwork
from acme_ext.ops.search import load_mctx
from acme_ext.replay.base import Replay
from acme_ext.replay.sequences import SequenceReplay
from acme_ext.types import Array, EnvironmentSpec, Params, Sample, Tree
from acme_ext.utils import loggers

_ROWS = 7  # environments in a batch; a number that is probably not another size


def check_agent(experiment: Experiment, spec: EnvironmentSpec) -> Agent:
    """Returns an experiment's agent after checking that it fits the environment, without computing anything.

    The agent's networks, policies and core must do what their interfaces require. Parts from this package are tested,
    and a check takes up to a few seconds. So without a part of the user's own, it only checks that the core fits the
    environment, and that it gives errors if the replay is prioritized.

    Raises:
        UsageError: the agent can't act in the environment, its parts don't fit it or each other, its replay can't work,
            or it searches and mctx is not installed.
    """
    builder = experiment.builder
    if builder.searches:
        load_mctx()
    agent = experiment.make_agent(spec)
    name, own = type(builder).__name__, _has_own_parts(builder)
    if own:
        _check_networks(builder, spec)
    if own or agent.replay.prioritized:
        _check_core(name, agent.core, agent.replay)
    else:
        agent.core.abstract_state()
    if own:
        params = _params(agent)
        for policy in (agent.policy, agent.evaluation_policy):
            _check_policy(name, policy, params, spec)
    return agent


def budget_warnings(experiment: Experiment, agent: Agent, writers: int = 1) -> list[str]:
    """Returns warnings for a run that acts in an environment, with this number of writers of experience.

    The agent may be made for recorded data; or the budget may be too small for the replay to reach the first batch, so
    that nothing is learned.
    """
    replay, steps, warnings = agent.replay, experiment.steps, []
    if experiment.builder.wants_data:
        warnings.append(
            f"warning: {experiment.builder.name} is made for recorded data (data:DIR in place of the environment); "
            "this run has none, and learns from its own actions."
        )
    batch = replay.batch_size * agent.sgd_steps_per_call
    # A step adds at most one item, because a short episode is a sequence too; unrolls go on over the ends of episodes.
    most = steps // replay.period if isinstance(replay, SequenceReplay) and replay.cross_episodes else steps
    held = replay.waiting * writers  # items that writers have not sent yet
    if replay.samples_allowed(most - held) < batch:
        needed = bisect.bisect_left(range(2**40), batch, key=replay.samples_allowed) + held
        items, field = ("unrolls", "replay.length") if replay.fifo else ("items", "replay.min_size")
        warnings.append(
            f"warning: nothing will be learned: the replay gives the learner its first batch after {needed:,} {items}, "
            f"and the run has {steps:,} steps: give the run more, or the agent a smaller {field} or batch_size."
        )
    return warnings


def _has_own_parts(builder: Builder) -> bool:
    """Whether the builder's class, or a function in one of its fields, is not from this package."""

    def is_own(value: Any) -> bool:
        module = getattr(value, "__module__", None) or ""
        return isinstance(value, Named) or not module.startswith(f"{acme_ext.__name__}.")

    values = [type(builder), *(getattr(builder, field.name) for field in dataclasses.fields(builder))]
    return any(is_own(value) for value in values if callable(value))


def _check_core(name: str, core: LearnerCore, replay: Replay) -> None:
    size = replay.batch_size

    def step(data: Tree) -> tuple[Tree, Tree, Any, Any]:
        state = core.init(jax.random.key(0))
        made = core.step(state, Sample(data, jnp.ones(size, jnp.float32)))
        if not isinstance(made, tuple) or len(made) != 3:
            raise UsageError(f"the core of {name} returns {_say(made)}: its step must return (state, metrics, errors).")
        new_state, metrics, errors = made
        if not isinstance(metrics, Mapping) or "loss" not in metrics:
            raise UsageError(f"the core of {name} must return its metrics as a dictionary with a 'loss'.")
        for metric, value in metrics.items():
            if not isinstance(value, int | float | np.generic | np.ndarray | jax.Array) or np.shape(value):
                raise UsageError(f"the metric {metric!r} of {name} is {_say(value)}: metrics are scalars.")
        loggers.check_columns(metrics, f"a metric of {name}")
        return state, new_state, dict(metrics), errors

    state, new_state, _, errors = jax.eval_shape(step, replay.example(size))
    _check_same(f"the state of the core of {name}", state, new_state)
    if errors is None and replay.prioritized:
        raise UsageError(
            f"{name} gives no TD errors for priorities, so that its replay can't be prioritized: leave "
            "replay.prioritized false."
        )
    if errors is not None and getattr(errors, "shape", None) != (size,):
        raise UsageError(f"the core of {name} returns errors {_say(errors)}: they must be [B], one for each item.")


def policies_equal(agent: Agent, other: Agent, spec: EnvironmentSpec) -> bool:
    """Whether the policies of two agents compute the same, for training and for evaluation."""

    def computed(agent: Agent, policy: Policy) -> tuple[str, list[bytes]]:
        def act(params: Params, observation: Tree) -> tuple[Any, ...]:
            return policy.apply(params, *_inputs(policy, observation))

        traced = jax.make_jaxpr(act)(_params(agent), _observations(spec))
        return re.sub("0x[0-9a-f]+", "", str(traced)), [np.asarray(each).tobytes() for each in traced.consts]

    pairs = ((agent.policy, other.policy), (agent.evaluation_policy, other.evaluation_policy))
    return all(computed(agent, one) == computed(other, another) for one, another in pairs)


def _params(agent: Agent) -> Params:
    """Returns the shapes and dtypes of the policy's parameters."""
    return jax.eval_shape(lambda: agent.core.variables(agent.core.init(jax.random.key(0)))[POLICY])


def _observations(spec: EnvironmentSpec) -> Tree:
    """Returns the shapes and dtypes of a batch of observations."""
    return jax.eval_shape(lambda: jax.tree.map(jnp.asarray, specs.zeros(spec.observations, _ROWS)))


def _inputs(policy: Policy, observation: Tree) -> tuple[Context, Tree, Tree]:
    """Returns a policy's inputs for a batch of observations, besides the parameters."""
    key, zeros = jax.random.key(0), jnp.zeros(_ROWS, jnp.float32)
    state, memory = (
        jax.tree.map(jnp.asarray, start(_ROWS)) for start in (policy.init_state, policy.init_policy_memory)
    )
    return Context(jax.random.split(key, _ROWS), jnp.int32(0), zeros, zeros, zeros > 0, memory), observation, state


def _check_policy(name: str, policy: Policy, params: Params, spec: EnvironmentSpec) -> None:
    def act(params: Params, observation: Tree) -> tuple[Tree, Tree, Tree, Tree, Array]:
        context, observation, state = _inputs(policy, observation)
        memory, made = context.memory, policy.apply(params, context, observation, state)
        if not isinstance(made, tuple) or len(made) != 3:
            raise UsageError(f"the policy of {name} returns {_say(made)}: it must return (action, state, extras).")
        action, new_state, _ = made
        new_state, new_memory = new_state if isinstance(new_state, StateAndMemory) else (new_state, memory)
        return state, new_state, memory, new_memory, action

    state, new_state, memory, new_memory, action = jax.eval_shape(act, params, _observations(spec))
    for leaf in jax.tree.leaves(state):
        if leaf.shape[:1] != (_ROWS,):
            raise UsageError(f"init_state of {name}'s policy makes {_say(leaf)} for {_ROWS} environments: [B, ...].")
    _check_same(f"the state of {name}'s policy", state, new_state)
    _check_same(f"the memory of {name}'s policy", memory, new_memory)
    shape, discrete = (_ROWS, *spec.actions.shape), isinstance(spec.actions, DiscreteArray)
    kind = jnp.integer if discrete else jnp.floating
    if getattr(action, "shape", None) != shape or not jnp.issubdtype(action.dtype, kind):
        wanted = f"{'whole numbers' if discrete else 'floats'} {list(shape)}"
        raise UsageError(f"the policy of {name} returns actions {_say(action)} for {_ROWS} environments, not {wanted}.")


def _check_same(what: str, before: Tree, after: Tree) -> None:
    """Raises UsageError if a state changes its structure, shapes or dtypes."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise UsageError(f"{what} changes its structure in a step, from {_say(before)} to {_say(after)}.")
    for (path, old), new in zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            where = jax.tree_util.keystr(path)
            raise UsageError(f"{what} changes in a step: {where or 'it'} is {_say(old)} before and {_say(new)} after.")


def _check_networks(builder: Builder, spec: EnvironmentSpec) -> None:
    """Raises UsageError if a network of the user's own returns other shapes than the agent's default network."""
    for field in dataclasses.fields(builder):
        given, usual = getattr(builder, field.name), field.default
        if field.name != "network" or given is usual or usual is dataclasses.MISSING:
            continue
        options = {each.name: None for each in dataclasses.fields(builder) if each.name in ("torso", "core")}
        try:
            expected = _outputs(
                dataclasses.replace(builder, **{field.name: usual}, **options).make_networks(spec), spec
            )
        except Exception:  # the default network may not suit these observations, which is why the user has another
            continue
        own = builder.make_networks(spec)
        for part, (inputs, output) in expected.items():
            found = _output(own if part is None else getattr(own, part), inputs)
            said = f"{field.name} is {function_name(given)}, whose {'output' if part is None else part}"
            _compare(said, found, output, type(builder).__name__)


def _outputs(networks: Any, spec: EnvironmentSpec) -> dict[str | None, tuple[Any, Any]]:
    """Returns the inputs and the output of each network, as shapes and dtypes; the key of a single one is None.

    Networks of other kinds are left out.
    """
    observation = specs.zeros(spec.observations, _ROWS)
    action = np.zeros((_ROWS, *spec.actions.shape), np.float32)
    if isinstance(networks, hk.Transformed | RecurrentNetwork):
        return {None: ((observation,), _output(networks, (observation,)))}
    found: dict[str | None, tuple[Any, Any]] = {}
    for part in getattr(networks, "_fields", ()):
        if isinstance(network := getattr(networks, part), hk.Transformed):
            inputs = (observation, action) if part == "critic" and spec.actions.shape else (observation,)
            found[part] = inputs, _output(network, inputs)
    return found


def _output(network: Any, inputs: tuple[Any, ...]) -> Any:
    """Returns the shapes and dtypes of a network's output for a batch."""

    def output(*inputs: Any) -> Any:
        key = jax.random.key(0)
        if isinstance(network, RecurrentNetwork):
            params = network.init(key, jax.tree.map(lambda x: x[:1], inputs[0]))
            return network.step(params, jnp.zeros(_ROWS), inputs[0], network.init_memory(_ROWS))[0]
        return network.apply(network.init(key, *inputs), key, *inputs)

    return jax.eval_shape(output, *inputs)


def _compare(said: str, found: Any, expected: Any, agent: str) -> None:
    """Raises UsageError if arrays of an output have other shapes than those of the agent's own network.

    A distribution of another class is not compared.
    """
    fields = getattr(found, "_fields", ())
    if fields and type(found) is type(expected):
        for field in fields:
            _compare(f"{said}.{field}", getattr(found, field), getattr(expected, field), agent)
        return
    shapes = [getattr(each, "shape", None) for each in (found, expected)]  # None: a distribution, or another object
    if shapes[0] != shapes[1]:
        raise UsageError(
            f"{said} is {_say(found)} for {_ROWS} observations: {agent} needs {_say(expected)}, as of its own network."
        )


def _say(value: Any) -> str:
    """Describes a value by shapes and dtypes."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, tuple) and type(value) is tuple:
        return f"({', '.join(map(_say, value))})"
    return type(value).__name__
