"""CQL's penalty."""

import jax
import jax.numpy as jnp

from acme_ext.types import Array


def conservative_penalty(q_sampled: Array, log_density: Array, q_data: Array) -> Array:
    """Returns the penalties `[B]`, summed over critics (Kumar et al. 2020, eq. 4 and appendix F).

    sum_i log (1 / N) sum_n exp(q_sampled[i, n, b] - log_density[n, b]) - q_data[i, b]

    The first part estimates log sum_a exp Q(o, a) by importance sampling.

    Args:
        q_sampled: `[I, N, B]` each critic's values of sampled actions.
        log_density: `[N, B]` log-densities of the distributions that the actions were sampled from.
        q_data: `[I, B]` each critic's values of the data's actions.
    """
    count = q_sampled.shape[1]
    soft_maximum = jax.nn.logsumexp(q_sampled - log_density, axis=1) - jnp.log(count)
    return jnp.sum(soft_maximum - q_data, axis=0)
