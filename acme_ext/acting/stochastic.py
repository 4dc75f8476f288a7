"""Policies of agents that learn a distribution over actions, and need to know what it was when they acted."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.exploration import normal_noise
from acme_ext.acting.policy import Context, Policy
from acme_ext.learning.on_policy import Published
from acme_ext.ops.bounds import to_environment
from acme_ext.ops.gaussian import Gaussian
from acme_ext.ops.policy import Categorical
from acme_ext.specs import Bounds
from acme_ext.types import Array, Tree

Distribution = Categorical | Gaussian

Decide = Callable[[Any, Context, Tree, Tree], tuple[Distribution, Tree]]
"""`(params, context, observation [B, ...], state) -> (distribution [B, ...], state)`."""


def make_policy(
    decide: Decide,
    *,
    init_state: Callable[[int], Tree] | None = None,
    remember: Callable[[Tree, Array], Tree] = lambda state, action: state,
    bounds: Bounds | None = None,
    greedy: bool,
) -> Policy:
    """Returns the policy that samples from a distribution; its extras are those of `extras_spec`.

    Args:
        decide: the agent's, which is given `Published.params`.
        init_state: see `Policy`; None for a policy without a recurrent state.
        remember: `(state, action [B, ...]) -> state`, for states that hold the action taken.
        bounds: of the environment's action where it is continuous: the distribution is then a Gaussian of canonical
            actions, and what lies beyond the bounds is clipped on its way to the environment, not in the extras.
        greedy: takes the likeliest action instead, and gives no extras, for evaluation.
    """

    def apply(published: Published, context: Context, observation: Tree, state: Tree):
        distribution, state = decide(published.params, context, observation, state)
        if greedy:
            action = distribution.mode()
            return _leave(action, bounds), remember(state, action), ()
        action = distribution.sample(_noise(distribution, context.key))
        extras = {
            "log_prob": distribution.log_prob(action),
            "learner_steps": jnp.broadcast_to(published.learner_steps, action.shape[:1]),
        }
        if bounds is not None:
            extras["action"] = action
        return _leave(action, bounds), remember(state, action), extras

    return Policy(apply) if init_state is None else Policy(apply, init_state)


def extras_spec(bounds: Bounds | None = None) -> dict[str, np.ndarray]:
    """Returns arrays that stand for the extras of an environment's step: the log-probability of the action, the
    version of the policy, and of continuous actions the canonical one that was sampled, before it was clipped.
    """
    extras = {"log_prob": np.zeros((), np.float32), "learner_steps": np.zeros((), np.int32)}
    return extras if bounds is None else {**extras, "action": np.zeros(bounds.size, np.float32)}


def _noise(distribution: Distribution, keys: Array) -> Array:
    """Returns the noise `[B, A]` that a distribution is sampled with, each row from a key of its own `[B]`."""
    if isinstance(distribution, Categorical):
        size = distribution.logits.shape[-1]
        return jax.vmap(lambda key: jax.random.gumbel(key, (size,)))(keys)
    return normal_noise(keys, distribution.mean.shape[-1])


def _leave(action: Array, bounds: Bounds | None) -> Array:
    return action if bounds is None else to_environment(action, bounds)
