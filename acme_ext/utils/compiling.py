"""Compiles functions with the options that are fastest on the device."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

# On the CPU, JAX runs every call in a separate thread, unless this is disabled before the first call. That costs small
# networks half of their time: acting with an MLP takes 26 us per call with it and 14 us without; PPO on CartPole makes
# 9.6k steps/s with it and 11.2k without. In programs, the threads also compete for cores. For large networks it makes
# no difference (SAC, D4PG, DQN and IMPALA on Pong, two short runs each: within 4%).
jax.config.update("jax_cpu_enable_async_dispatch", False)


def jit(function: Callable, *, threaded: bool = False, **options: Any) -> Callable:
    """Returns `jax.jit(function, **options)`; on the CPU, with the runtime that is faster for small networks and loops.

    XLA's newer CPU runtime passes every operation to a thread pool, which halves the speed of small networks. It also
    runs the body of a loop on one thread. With jaxlib 0.5.3 on 2 cores, the old and the new runtime made 15.8k and 9.1k
    DQN steps/s with an MLP, and acting with an MLP took 30 and 74 us per call.

    Args:
        function: the function to compile.
        threaded: whether to use the newer runtime. It is faster for convolutions, wide layers, and tree searches (2.5
            to 6 times for 1 to 128 searches with an MLP).
        options: options of `jax.jit`.
    """
    if threaded or not _has_old_cpu_runtime():
        return jax.jit(function, **options)
    return jax.jit(function, compiler_options=_OLD_CPU_RUNTIME, **options)


def is_convolutional(params: Any) -> bool:
    """Whether a nest of parameters includes convolution kernels."""
    return any(jnp.ndim(leaf) >= 4 for leaf in jax.tree.leaves(params))


def is_wide(state: Any, batch_size: int) -> bool:
    """Whether a learner's SGD steps should be compiled with `threaded`: they are large, or have convolutions.

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
    except Exception:  # later releases don't have the option; their exceptions differ
        return False
    return True
