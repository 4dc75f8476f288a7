"""Acting: environment steps per second of the environment loop, on CartPole."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from dm_env.specs import DiscreteArray

from acme_ext import envs, specs
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.acting.policy import Context
from acme_ext.acting.variables import POLICY, VariableClient
from acme_ext.builders.base import Builder
from acme_ext.builders.dqn import DQN
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.types import EnvironmentSpec, Tree
from acme_ext.utils import compiling
from benchmarks.shared.measure import Contestant, one_after_the_other, rates
from benchmarks.shared.report import Figure, against, figure
from benchmarks.speed import cartpole
from benchmarks.speed.tables import PENDING, FixedVariables, unlimited

_BATCHES = (1, 8, 32)
_NAME = "CartPole-v1"


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures the environment loop with an actor, compared with bare environments and the bare compiled policy."""
    figures = []
    for num_envs in _BATCHES:
        with contextlib.ExitStack() as stack:
            measured = rates(_contestants(stack, num_envs), seconds, rounds)
        limit = one_after_the_other([measured["environment"], measured["policy"]])
        for what in ("loop and actor", "loop, actor and writer"):
            ours = measured[what]
            references = [
                against(ours, "our environment and policy, bare, one after the other", limit, source="computed"),
                against(ours, "our environment, bare", measured["environment"]),
                against(ours, "gymnasium, a list of environments", measured["list"]),
                against(ours, "gymnasium, vectorised", measured["vectorised"]),
                against(ours, "compiled policy, bare", measured["policy"]),
            ]
            figures.append(figure("acting", f"{what} B={num_envs}", "steps/s", ours, references))
    return figures


def _contestants(stack: contextlib.ExitStack, num_envs: int) -> dict[str, Contestant]:
    builder = DQN()
    agent = builder.make_agent(cartpole.SPEC)
    source, replay = FixedVariables.of(agent), unlimited(agent)
    server = ReverbStore(replay)
    stack.callback(server.close)
    writer = replay.writer(server.table.sink(), num_envs, max_pending=PENDING)
    stack.callback(writer.close)

    def environment() -> BatchedEnvironment:
        made = envs.make(f"gym:{_NAME}", num_envs=num_envs)
        stack.callback(made.close)
        return made

    def loop(with_writer: bool) -> Contestant:
        actor = builder.make_agent(cartpole.SPEC).make_actor(
            VariableClient(source),
            jax.random.key(0),
            num_envs=num_envs,
            writer=writer if with_writer else None,
        )
        return repeated(EnvironmentLoop(environment(), actor).step, writer.wait if with_writer else _nothing)

    return {
        "loop and actor": loop(False),
        "loop, actor and writer": loop(True),
        "environment": bare_environment(environment()),
        "list": _list(num_envs),
        "vectorised": _vectorised(stack, num_envs),
        "policy": bare_policy(builder, cartpole.SPEC, *source.get_variables([POLICY]), num_envs),
    }


def _nothing() -> None:
    pass


def repeated(step: Callable[[], int], finish: Callable[[], object] = _nothing, times: int = 20) -> Contestant:
    """Returns a contestant that calls `step` `times` times per turn; each call returns its number of units."""

    def work() -> int:
        return sum(step() for _ in range(times))

    return Contestant(work, finish)


def _actions(num_envs: int, count: int = 2) -> Callable[[], np.ndarray]:
    """Returns a function that returns random actions `[B]`, generated in advance."""
    actions = np.random.default_rng(0).integers(count, size=(997, num_envs))
    return itertools.cycle(actions).__next__


def bare_environment(environment: BatchedEnvironment) -> Contestant:
    """Returns a contestant that steps an environment with random discrete actions."""
    spec = environment.action_spec()
    assert isinstance(spec, DiscreteArray)
    action = _actions(environment.num_envs, spec.num_values)
    environment.reset()
    return repeated(lambda: int(np.count_nonzero(environment.step(action()).step_type)))


def _list(num_envs: int) -> Contestant:
    environments = [gymnasium.make(_NAME) for _ in range(num_envs)]
    action = _actions(num_envs)
    for environment in environments:
        environment.reset(seed=0)

    def step() -> int:
        for environment, chosen in zip(environments, action(), strict=True):
            _, _, terminated, truncated, _ = environment.step(chosen)
            if terminated or truncated:
                environment.reset()
        return num_envs

    return repeated(step)


def _vectorised(stack: contextlib.ExitStack, num_envs: int) -> Contestant:
    environments = gymnasium.make_vec(_NAME, num_envs, vectorization_mode="vector_entry_point")
    stack.callback(environments.close)
    environments.reset(seed=0)
    action = _actions(num_envs)
    ended = np.zeros(num_envs, np.bool_)

    def step() -> int:
        nonlocal ended
        taken = num_envs - int(np.count_nonzero(ended))  # the other environments are reset
        _, _, terminated, truncated, _ = environments.step(action())
        ended = terminated | truncated
        return taken

    return repeated(step)


def bare_policy(builder: Builder, spec: EnvironmentSpec, params: Any, num_envs: int) -> Contestant:
    """Returns a contestant that applies an agent's compiled policy without a recurrent state."""
    act, observation = _bare_act(builder, spec, params, num_envs), specs.zeros(spec.observations, num_envs)

    def step() -> int:
        act(observation)
        return num_envs

    return repeated(step)


def bare_acting(environment: BatchedEnvironment, builder: Builder, spec: EnvironmentSpec, params: Any) -> Contestant:
    """Returns a contestant that steps an environment with an agent's compiled policy.

    The bare environment and the bare policy alternate, so that they share the processor's caches as in a real run.
    """
    act, timestep = _bare_act(builder, spec, params, environment.num_envs), environment.reset()

    def step() -> int:
        nonlocal timestep
        timestep = environment.step(act(timestep.observation))
        return int(np.count_nonzero(timestep.step_type))

    return repeated(step)


def _bare_act(builder: Builder, spec: EnvironmentSpec, params: Any, num_envs: int) -> Callable[[Tree], np.ndarray]:
    policy = builder.make_agent(spec).policy
    apply = compiling.jit(
        lambda params, context, observation: policy.apply(params, context, observation, ())[0],
        threaded=compiling.is_convolutional(params),
    )
    keys, zeros = jax.random.split(jax.random.key(0), num_envs), np.zeros(num_envs, np.float32)
    context = Context(keys, jnp.zeros((), jnp.int32), rank=zeros, reward=zeros)
    return lambda observation: np.asarray(apply(params, context, observation))
