"""Compiled loops of PPO and DQN on CartPole: the package's, and bare ones as a reference for their speed.

The bare loops are written for this problem only. They have the agents' settings, networks and computations, but not the
agents' interfaces, checks or episode statistics.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from acme_ext import builders
from acme_ext.builders.base import Builder
from acme_ext.envs.functional import row_keys
from acme_ext.envs.jax_games import functional
from acme_ext.launch import Checkpoints, Evaluation, Experiment
from acme_ext.launch.engines.compiled import engine, loops
from acme_ext.utils import compiling

BATCHES_A_CALL = 5
TICKS_A_CALL = 64
_LAST = 2
_NONE_SEEN = np.zeros(4, np.float32), np.ones(4, np.float32), 1e-4  # initial moments of observations


def package(experiment: Experiment, iterations: int) -> Callable[[], int]:
    """Returns a function that makes one compiled call of a compiled run's loop, and returns the steps taken."""
    agent = dataclasses.replace(experiment.make_agent(experiment.make_spec()), sgd_steps_per_call=1)
    loop = loops.Loop(agent, engine.environment_of(experiment), experiment.num_envs, experiment.builder.name)
    world = jax.jit(loop.init)(*engine.keys_of(experiment))
    advance = compiling.jit(loop.advance, donate_argnums=0)

    def one() -> int:
        nonlocal world
        before = int(world.place.steps)
        world, _ = advance(world, np.int32(2**31 - 1), np.int32(iterations))
        return int(world.place.steps) - before

    return one


def package_on_cartpole(name: str, num_envs: int, iterations: int | None = None) -> Callable[[], int]:
    """Returns the function of `package` for an agent on CartPole; None stands for a call as long as the bare loop's."""
    if iterations is None:
        iterations = BATCHES_A_CALL if name == "ppo" else TICKS_A_CALL
    return package(experiment(builder_of(name, num_envs), "jax:CartPole-v1", num_envs), iterations)


def builder_of(name: str, num_envs: int) -> Builder:
    """Returns an agent's builder with its defaults, except for two fields.

    A batch of PPO has one unroll of each environment. DQN has no averaged parameters: the bare loop has none, and an
    average in each of its many small learner steps would be further work.
    """
    builder: Builder = builders.load(name)()
    if name == "ppo":
        return builder.replace(config=dataclasses.replace(builder.config, batch_size=num_envs))
    return builder.replace(average_rate=None)


def experiment(builder: Builder, environment: str, num_envs: int, run_dir: str = "none", **options: Any) -> Experiment:
    """Returns an experiment without evaluations and checkpoints, for measuring its speed.

    Args:
        builder: the agent's.
        environment: the environment's name.
        num_envs: number of environments.
        run_dir: the run directory, if the experiment is run.
        options: options of the environment's family.
    """
    return Experiment(
        builder,
        environment,
        10**9,
        num_envs=num_envs,
        evaluation=Evaluation(every=0),
        checkpoints=Checkpoints(every_s=1e9),
        environment_options=options,
        run_dir=run_dir,
    )


def ppo(num_envs: int, batches: int = BATCHES_A_CALL) -> Callable[[], int]:
    """Returns a function that makes one compiled call of PPO's loop, with `batches` batches, and returns the
    steps taken.
    """
    c, environment = builders.PPO().config, functional("CartPole-v1")
    length, optimizer = c.replay.length, optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4, eps=1e-5))

    def log_prob(logits, action):
        return jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]

    def act(carry, _):
        params, stats, state, timestep, keys, tick = carry
        x = _seen(stats, timestep.observation)
        logits = _forward(params[0], x)
        noise = jax.vmap(lambda key: jax.random.gumbel(jax.random.fold_in(key, tick), (2,)))(keys)
        action = jnp.argmax(logits + noise, axis=1).astype(jnp.int32)
        after, following = jax.vmap(environment.step)(state, action)
        kept = timestep.observation, timestep.step_type, action, log_prob(logits, action), following
        return (params, stats, after, following, keys, tick + 1), kept

    def loss(params, batch):
        x, action, before, advantage, target, mask = batch
        logits, value = _forward(params[0], x), _forward(params[1], x)[:, 0]
        count = jnp.maximum(mask.sum(), 1.0)
        centred = mask * (advantage - (mask * advantage).sum() / count)
        advantage = centred / (jnp.sqrt((centred**2).sum() / count) + 1e-8)
        ratio = jnp.exp(log_prob(logits, action) - before)
        policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
        logs = jax.nn.log_softmax(logits)
        entropy = -(jnp.exp(logs) * logs).sum(1)
        return (mask * (policy + 0.5 * (value - target) ** 2 - 0.01 * entropy)).sum() / count

    def learn(carry, chosen):
        (params, optimizer_state), batch = carry
        part = jax.tree.map(lambda x: x[chosen], batch)
        updates, optimizer_state = optimizer.update(jax.grad(loss)(params, part), optimizer_state)
        return ((optax.apply_updates(params, updates), optimizer_state), batch), None

    def iteration(carry, _):
        params, optimizer_state, stats, values, state, timestep, keys, tick, key = carry
        (_, _, state, timestep, _, tick), kept = jax.lax.scan(
            act, (params, stats, state, timestep, keys, tick), length=length
        )
        observation, kinds, action, before, following = kept
        x = _seen(stats, jnp.concatenate([observation, timestep.observation[None]]))
        spread = jnp.sqrt(values[1] + 1e-8)
        value = _forward(params[1], x)[..., 0] * spread + values[0]
        mask = (kinds != _LAST).astype(jnp.float32)
        discount = mask * c.discount * following.discount

        def back(sums, step):
            reward, discount, now, then, mask = step
            sums = mask * (reward + discount * then - now + discount * c.gae_lambda * sums)
            return sums, sums

        steps = following.reward, discount, value[:-1], value[1:], mask
        _, advantage = jax.lax.scan(back, jnp.zeros(num_envs), steps, reverse=True)
        target = advantage + value[:-1]
        values = _moments(values, target.reshape(-1))
        target = (target - values[0]) / jnp.sqrt(values[1] + 1e-8)
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (x[:-1], action, before, advantage, target, mask))
        key, use = jax.random.split(key)
        size = length * num_envs
        order = jax.vmap(lambda key: jax.random.permutation(key, size))(jax.random.split(use, c.num_epochs))
        (trained, _), _ = jax.lax.scan(
            learn, ((params, optimizer_state), batch), order.reshape(c.num_epochs * c.num_minibatches, -1)
        )
        stats = _moments(stats, observation.reshape(-1, 4))
        return (*trained, stats, values, state, timestep, keys, tick, key), jnp.sum(following.step_type != 0)

    keys = row_keys(0, num_envs)
    state, timestep = jax.jit(jax.vmap(environment.reset))(keys)
    params = _mlp(jax.random.key(1), (4, 64, 64, 2)), _mlp(jax.random.key(2), (4, 64, 64, 1))
    values = jnp.zeros(()), jnp.ones(()), 1e-4
    carry: Any = (
        params,
        optimizer.init(params),
        _NONE_SEEN,
        values,
        state,
        timestep,
        keys,
        jnp.int32(0),
        jax.random.key(3),
    )
    carry = jax.tree.map(jnp.asarray, carry)
    return _calls(iteration, carry, batches)


def dqn(num_envs: int) -> Callable[[], int]:
    """Returns a function that makes one compiled call of DQN's loop, with 64 ticks, and returns the steps taken.

    The replay stores single steps; n-step transitions are computed when they are sampled.
    """
    c, environment = builders.DQN().config, functional("CartPole-v1")
    n, ticks = c.replay.n_step, c.replay.max_size // num_envs
    updates = max(1, int(num_envs * c.replay.samples_per_insert / c.batch_size))
    optimizer = optax.chain(optax.clip_by_global_norm(c.max_gradient_norm), optax.adam(c.learning_rate))

    def loss(params, target, batch):
        before, action, reward, discount, after, weight = batch
        best = jnp.argmax(_forward(params, after, jax.nn.relu), axis=1)
        value = _chosen(_forward(target, after, jax.nn.relu), best)
        now = _chosen(_forward(params, before, jax.nn.relu), action)
        return 0.5 * jnp.mean(weight * (jax.lax.stop_gradient(reward + discount * value) - now) ** 2)

    def learn(carry, key):
        params, target, optimizer_state, stats, ring, tick = carry
        size = jnp.minimum(tick, ticks)
        start = tick - size + jax.random.randint(key, (c.batch_size,), 0, jnp.maximum(1, size - n))
        env = jax.random.randint(jax.random.fold_in(key, 1), (c.batch_size,), 0, num_envs)
        place = (start + jnp.arange(n + 1)[:, None]) % ticks
        observation, kind, action, reward, discount = ring
        kinds = kind[place, env]
        going = jnp.cumprod(kinds[:n] != _LAST, axis=0)  # whether a step belongs to the transition
        factors = jnp.cumprod(jnp.where(going, c.discount * discount[place[:n], env], 1.0), axis=0)
        weights = jnp.concatenate([jnp.ones((1, c.batch_size)), factors[:-1]]) * going
        total = jnp.sum(weights * reward[place[:n], env], axis=0)
        after = observation[(start + going.sum(axis=0)) % ticks, env]
        before = observation[place[0], env]
        batch = _seen(stats, before), action[place[0], env], total, factors[-1], _seen(stats, after), going[0]
        updates, optimizer_state = optimizer.update(jax.grad(loss)(params, target, batch), optimizer_state, params)
        params = optax.apply_updates(params, updates)
        target = optax.incremental_update(params, target, c.target_rate)
        return (params, target, optimizer_state, _moments(stats, before), ring, tick), None

    def iteration(carry, _):
        params, target, optimizer_state, stats, ring, state, timestep, tick, key = carry
        key, explore, draw, use = jax.random.split(key, 4)
        epsilon = optax.linear_schedule(c.epsilon_start, c.epsilon_end, c.epsilon_decay_steps)(tick * num_envs)
        greedy = jnp.argmax(_forward(params, _seen(stats, timestep.observation), jax.nn.relu), axis=1)
        at_random = jax.random.uniform(explore, (num_envs,)) < epsilon
        action = jnp.where(at_random, jax.random.randint(draw, (num_envs,), 0, 2), greedy).astype(jnp.int32)
        state, following = jax.vmap(environment.step)(state, action)
        row = timestep.observation, timestep.step_type, action, following.reward, following.discount
        ring = jax.tree.map(lambda leaf, new: leaf.at[tick % ticks].set(new), ring, row)
        learned = (params, target, optimizer_state, stats, ring, tick + 1)
        learned, _ = jax.lax.cond(
            (tick + 1) * num_envs >= c.replay.min_size,
            lambda learned: jax.lax.scan(learn, learned, jax.random.split(use, updates)),
            lambda learned: (learned, None),
            learned,
        )
        return (*learned[:5], state, following, tick + 1, key), jnp.sum(following.step_type != 0)

    state, timestep = jax.jit(jax.vmap(environment.reset))(row_keys(0, num_envs))
    params = _mlp(jax.random.key(1), (4, *c.hidden_sizes, 2))
    row = timestep.observation, timestep.step_type, jnp.zeros(num_envs, jnp.int32), timestep.reward, timestep.discount
    ring = jax.tree.map(lambda leaf: jnp.zeros((ticks, *leaf.shape), leaf.dtype), row)
    learned = params, params, optimizer.init(params), _NONE_SEEN, ring
    carry: Any = (*learned, state, timestep, jnp.int32(0), jax.random.key(2))
    return _calls(iteration, jax.tree.map(jnp.array, carry), TICKS_A_CALL)


def _mlp(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    start = jax.nn.initializers.orthogonal(2**0.5)
    return [(start(k, (a, b)), jnp.zeros(b)) for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)]


def _forward(layers, x, activation=jnp.tanh):
    for weights, bias in layers[:-1]:
        x = activation(x @ weights + bias)
    return x @ layers[-1][0] + layers[-1][1]


def _moments(old, x):
    mean, var, count = old
    number = x.shape[0]
    total, delta = count + number, jnp.mean(x, 0) - mean
    square = var * count + jnp.var(x, 0) * number + delta**2 * count * number / total
    return mean + delta * number / total, square / total, total


def _seen(stats, x):
    return jnp.clip((x - stats[0]) / jnp.sqrt(stats[1] + 1e-8), -10, 10)


def _chosen(values, action):
    return jnp.take_along_axis(values, action[:, None], axis=1)[:, 0]


def _calls(iteration: Callable, carry: Any, length: int) -> Callable[[], int]:
    call = compiling.jit(lambda carry: jax.lax.scan(iteration, carry, length=length), donate_argnums=0)

    def one() -> int:
        nonlocal carry
        carry, steps = call(carry)
        return int(steps.sum())

    return one
