"""Compiling for whatever device there is, as fast as it runs there."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

# On the CPU, JAX hands every call to a thread of its own, unless it is told before the first one. Small networks lose
# half of their time by that: acting with an MLP takes 26 us a call with it and 14 us without, PPO's CartPole runs at
# 11.2k steps/s in place of 9.6k, and a program has more threads that want the same cores. Large ones don't mind (SAC,
# D4PG, DQN and IMPALA on Pong, two short runs each: within 4%).
jax.config.update("jax_cpu_enable_async_dispatch", False)


def jit(function: Callable, *, threaded: bool = False, **options: Any) -> Callable:
    """Returns `jax.jit(function, **options)`, on the CPU with the runtime that suits small networks and loops.

    XLA's newer CPU runtime hands every operation to a pool of threads, which costs small networks half of their speed
    and runs the body of a loop on one thread. Measured with jaxlib 0.5.3 on 2 cores, old against new runtime: a DQN
    step of an MLP 15.8k against 9.1k steps/s; acting with an MLP 30 against 74 us a call.

    Args:
        function: to compile.
        threaded: keeps the newer runtime. It is the faster one for convolutions, for wide layers, and for tree searches
            (1 to 128 with an MLP: 2.5 to 6 times as fast).
        options: of `jax.jit`.
    """
    if threaded or not _has_old_cpu_runtime():
        return jax.jit(function, **options)
    return jax.jit(function, compiler_options=_OLD_CPU_RUNTIME, **options)


def is_convolutional(params: Any) -> bool:
    """Whether a nest of parameters holds kernels of convolutions."""
    return any(jnp.ndim(leaf) >= 4 for leaf in jax.tree.leaves(params))


def is_wide(state: Any, batch_size: int) -> bool:
    """Whether the SGD steps of a learner's state are so large, or have convolutions, that they are `threaded`.

    Measured on 2 cores, old against new runtime. Steps/s: SAC, 58M matrix entries times batch, 209 against 411; Rainbow
    on CartPole, 28M, 244 against 173. Milliseconds a step, with convolutions: DQN on Pong 37 against 28, R2D2 1,080
    against 930, RND 1,030 against 810; on MinAtar DQN 1.6 against 0.9, MuZero 940 against 590.
    """
    matrices = sum(leaf.size for leaf in jax.tree.leaves(state) if jnp.ndim(leaf) == 2)
    return matrices * batch_size > _WIDE or is_convolutional(state)


_WIDE = 32_000_000

_OLD_CPU_RUNTIME = {"xla_cpu_use_thunk_runtime": False}


@functools.cache
def _has_old_cpu_runtime() -> bool:
    if jax.default_backend() != "cpu":
        return False
    try:
        jax.jit(lambda x: x + 1, compiler_options=_OLD_CPU_RUNTIME).lower(0.0).compile()
    except Exception:  # later releases have dropped the option: whatever they say, it isn't there
        return False
    return True
