"""Value models: a critic outputs either the expected return, or the return's distribution on fixed atoms.

Agents use both through a `ValueModel`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.config.fields import Checked
from acme_ext.errors import UsageError
from acme_ext.ops import distributional
from acme_ext.types import Array


class CriticLoss(NamedTuple):
    """The loss of a critic, for each item."""

    loss: Array  # [B]
    td_error: Array  # [B] target minus prediction, of expected returns
    metrics: Mapping[str, Array]  # [B] each


class ValueModel(NamedTuple):
    """The meaning of a critic's outputs, and the loss for them."""

    outputs: int | None
    """The number of a critic's outputs for an action, `[B, outputs]`; None for a single value, `[B]`."""

    mean: Callable[[Array], Array]
    """`output [..., outputs] -> q [...]`, the expected return."""

    loss: Callable[[Array, Array, Array, Array], CriticLoss]
    """`(output_tm1 [B, outputs], r_t [B], discount_t [B], output_t [N, B, outputs]) -> CriticLoss`: the loss against
    the Bellman target. `output_t` has N equally likely outputs, one for each action sampled at the end of the
    transition. The gradient flows only through `output_tm1`.
    """


def expected_value() -> ValueModel:
    """Returns the model of critics that output the expected return `[B]`.

    loss = delta**2 / 2, delta = R_t + gamma_t * mean_n q_t[n] - q_tm1.
    """

    def loss(q_tm1: Array, r_t: Array, discount_t: Array, q_t: Array) -> CriticLoss:
        error = jax.lax.stop_gradient(r_t + discount_t * jnp.mean(q_t, axis=0)) - q_tm1
        return CriticLoss(0.5 * error**2, error, {})

    return ValueModel(None, lambda q: q, loss)


def categorical_value(v_min: float, v_max: float, num_atoms: int) -> ValueModel:
    """Returns the model of critics that output logits `[B, num_atoms]` of the return's distribution (Bellemare et al.
    2017, section 4).

    loss = cross-entropy(projection of R_t + gamma_t * Z_t, softmax(logits_tm1)), where Z_t is the equal mixture of the
    N distributions softmax(logits_t[n]). The part of the target outside the support is moved to its ends, which biases
    the critic and the policy. The metric `clipped_mass` is the probability of that part.

    Args:
        v_min: the return of the lowest atom.
        v_max: the return of the highest atom.
        num_atoms: number of atoms, evenly spaced from `v_min` to `v_max`, including both.
    """
    atoms = np.linspace(v_min, v_max, num_atoms, dtype=np.float32)
    slack = 1e-3 * (v_max - v_min) / (num_atoms - 1)  # tolerance for rounding at the ends of the support

    def mean(logits: Array) -> Array:
        return distributional.categorical_mean(logits, atoms)

    def loss(logits_tm1: Array, r_t: Array, discount_t: Array, logits_t: Array) -> CriticLoss:
        probs_t = jnp.mean(jax.nn.softmax(logits_t), axis=0)
        values = r_t[:, None] + discount_t[:, None] * atoms
        target = jax.lax.stop_gradient(distributional.categorical_projection(values, probs_t, atoms))
        beyond = (values < v_min - slack) | (values > v_max + slack)
        td_error = target @ atoms - mean(logits_tm1)
        metrics = {"clipped_mass": jnp.sum(probs_t * beyond, axis=-1)}
        return CriticLoss(distributional.cross_entropy(target, logits_tm1), td_error, metrics)

    return ValueModel(num_atoms, mean, loss)


def check_support(v_min: float, v_max: float, num_atoms: int) -> None:
    """Raises UsageError, with the config's field names, if the support is not valid."""
    if not (np.isfinite(v_min) and np.isfinite(v_max) and v_min < v_max):
        raise UsageError(f"v_min is {v_min} and v_max is {v_max}: both must be finite, and v_min the smaller.")
    if num_atoms < 2:
        raise UsageError(f"num_atoms is {num_atoms}: it must be at least 2.")


@dataclasses.dataclass(frozen=True)
class CategoricalConfig(Checked):
    """The support of a categorical critic; it must include all possible returns (see the metric clipped_mass)."""

    v_min: float = -150.0  # return of the lowest atom; Hoffman et al. 2020, released code
    v_max: float = 150.0  # return of the highest atom; likewise
    num_atoms: int = 51  # Barth-Maron et al. 2018, section 4

    def __post_init__(self):
        super().__post_init__()
        check_support(self.v_min, self.v_max, self.num_atoms)


def value_of(config: Any) -> ValueModel:
    """Returns the value model for an agent's config: distributions if it is a `CategoricalConfig`."""
    if isinstance(config, CategoricalConfig):
        return categorical_value(config.v_min, config.v_max, config.num_atoms)
    return expected_value()
