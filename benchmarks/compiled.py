"""`python -m benchmarks.compiled`: PPO on CartPole compiled, beside a bare compiled loop and a single process.

The bare loop is PPO written once more for this problem alone, with the same settings, network and arithmetic, and with
nothing else: no contract of an agent, no checks, no episodes counted. All take turns in one run, without compiling.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

_NAME = "jax:CartPole-v1"
BATCHES_A_CALL = 5


def bare(num_envs: int) -> Callable[[], int]:
    """Returns a function that makes a compiled call of the bare loop and returns the environments' steps in it."""
    import jax
    import jax.numpy as jnp
    import optax

    from acme_ext import builders
    from acme_ext.envs.functional import row_keys
    from acme_ext.envs.jax_games import functional
    from acme_ext.utils import compiling

    c, environment = builders.PPO().config, functional("CartPole-v1")
    length, optimizer = c.replay.length, optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4, eps=1e-5))

    def mlp(key, sizes):
        keys = jax.random.split(key, len(sizes) - 1)
        start = jax.nn.initializers.orthogonal(2**0.5)
        return [(start(k, (a, b)), jnp.zeros(b)) for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)]

    def forward(layers, x):
        for weights, bias in layers[:-1]:
            x = jnp.tanh(x @ weights + bias)
        return x @ layers[-1][0] + layers[-1][1]

    def moments(old, x):
        mean, var, count = old
        number = x.shape[0]
        total, delta = count + number, jnp.mean(x, 0) - mean
        square = var * count + jnp.var(x, 0) * number + delta**2 * count * number / total
        return mean + delta * number / total, square / total, total

    def seen(stats, x):
        return jnp.clip((x - stats[0]) / jnp.sqrt(stats[1] + 1e-8), -10, 10)

    def log_prob(logits, action):
        return jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]

    def act(carry, _):
        params, stats, state, timestep, keys, tick = carry
        x = seen(stats, timestep.observation)
        logits = forward(params[0], x)
        noise = jax.vmap(lambda key: jax.random.gumbel(jax.random.fold_in(key, tick), (2,)))(keys)
        action = jnp.argmax(logits + noise, axis=1).astype(jnp.int32)
        after, following = jax.vmap(environment.step)(state, action)
        kept = timestep.observation, timestep.step_type, action, log_prob(logits, action), following
        return (params, stats, after, following, keys, tick + 1), kept

    def loss(params, batch):
        x, action, before, advantage, target, mask = batch
        logits, value = forward(params[0], x), forward(params[1], x)[:, 0]
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
        x = seen(stats, jnp.concatenate([observation, timestep.observation[None]]))
        spread = jnp.sqrt(values[1] + 1e-8)
        value = forward(params[1], x)[..., 0] * spread + values[0]
        mask = (kinds != 2).astype(jnp.float32)
        discount = mask * c.discount * following.discount

        def back(sums, step):
            reward, discount, now, then, mask = step
            sums = mask * (reward + discount * then - now + discount * c.gae_lambda * sums)
            return sums, sums

        steps = following.reward, discount, value[:-1], value[1:], mask
        _, advantage = jax.lax.scan(back, jnp.zeros(num_envs), steps, reverse=True)
        target = advantage + value[:-1]
        values = moments(values, target.reshape(-1))
        target = (target - values[0]) / jnp.sqrt(values[1] + 1e-8)
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (x[:-1], action, before, advantage, target, mask))
        key, use = jax.random.split(key)
        size = length * num_envs
        order = jax.vmap(lambda key: jax.random.permutation(key, size))(jax.random.split(use, c.num_epochs))
        (trained, _), _ = jax.lax.scan(
            learn, ((params, optimizer_state), batch), order.reshape(c.num_epochs * c.num_minibatches, -1)
        )
        stats = moments(stats, observation.reshape(-1, 4))
        return (*trained, stats, values, state, timestep, keys, tick, key), jnp.sum(following.step_type != 0)

    keys = row_keys(0, num_envs)
    state, timestep = jax.jit(jax.vmap(environment.reset))(keys)
    params = mlp(jax.random.key(1), (4, 64, 64, 2)), mlp(jax.random.key(2), (4, 64, 64, 1))
    fresh = jnp.zeros(4), jnp.ones(4), 1e-4
    values = jnp.zeros(()), jnp.ones(()), 1e-4
    carry: Any = (params, optimizer.init(params), fresh, values, state, timestep, keys, jnp.int32(0), jax.random.key(3))
    carry = jax.tree.map(jnp.asarray, carry)
    call = compiling.jit(lambda carry: jax.lax.scan(iteration, carry, length=BATCHES_A_CALL))

    def one() -> int:
        nonlocal carry
        carry, steps = call(carry)
        return int(steps.sum())

    return one


def compiled(num_envs: int) -> Callable[[], int]:
    """Returns a function that makes a call of the runner's loop and returns the environments' steps in it."""
    import jax
    import numpy as np

    from acme_ext.envs.jax_games import functional
    from acme_ext.launch.compiled import loops, runner
    from acme_ext.utils import compiling

    experiment = _experiment(num_envs)
    agent = experiment.make_agent(experiment.make_spec())
    loop = loops.Loop(agent, functional("CartPole-v1"), num_envs, "PPO")
    world = jax.jit(loop.init)(*runner.keys_of(experiment))
    advance = compiling.jit(loop.advance, donate_argnums=0)

    def one() -> int:
        nonlocal world
        before = int(world.place.steps)
        world, _ = advance(world, np.int32(2**31 - 1), np.int32(BATCHES_A_CALL))
        return int(world.place.steps) - before

    return one


def single(num_envs: int) -> Callable[[], int]:
    """Returns a function that goes on with a run in a single process, and returns the environments' steps in it."""
    import contextlib

    from acme_ext.launch.runners import local
    from acme_ext.launch.runs import store

    experiment, stack = _experiment(num_envs), contextlib.ExitStack()
    environment = experiment.make_environment(num_envs)
    held = stack.enter_context(store.hold(store.prepare(experiment), experiment, print))
    run = local._Run(experiment, environment, held, None, print, None, None, stack, None)
    steps = experiment.builder.config.replay.length

    def one() -> int:
        before = run.steps
        for _ in range(steps * BATCHES_A_CALL):
            run.loop.step()
            run._learn()
        return run.steps - before

    return one


def _experiment(num_envs: int) -> Any:
    import dataclasses

    from acme_ext import builders
    from acme_ext.launch import Evaluation, Experiment

    builder = builders.PPO()
    builder = builder.replace(config=dataclasses.replace(builder.config, batch_size=num_envs))
    folder = tempfile.mkdtemp()
    return Experiment(builder, _NAME, 10**9, num_envs=num_envs, evaluation=Evaluation(every=0), run_dir=folder)


def rates(make: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Returns steps/s of each, round by round; the first call of each, which compiles, is left out."""
    found: dict[str, list[float]] = {name: [] for name in make}
    for number in range(rounds + 1):
        for name, one in make.items():
            began = time.perf_counter()
            steps = one()
            if number:
                found[name].append(steps / (time.perf_counter() - began))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found = rates({make.__name__: make(options.num_envs) for make in (bare, compiled, single)}, options.rounds)
    print(f"PPO on {_NAME}, {options.num_envs} environments; medians of {options.rounds} rounds")
    for name, values in found.items():
        ratios = [a / b for a, b in zip(found["compiled"], values, strict=True)]
        print(f"{name:<10} {statistics.median(values):>10,.0f} steps/s   compiled is {statistics.median(ratios):.2f} x")


if __name__ == "__main__":
    main()
