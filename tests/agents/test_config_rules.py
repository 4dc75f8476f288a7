"""The rules that the fields of the agents' configs share. Rules between fields are with the agents."""

import dataclasses
import itertools
import typing

import pytest

from acme_ext import builders
from acme_ext.config import types
from acme_ext.errors import UsageError

NAN = float("nan")
WRONG = {
    "a count": (0, -1),
    "a number of steps or the like": (-1,),
    "above 0": (0.0, -1.0, NAN),
    "at least 0": (-0.1, NAN),
    "a share": (-0.1, 1.1, NAN),
    "a share above 0": (0.0, 1.1, NAN),
    "layers": ((64, 0),),
    "at least one layer": ((), (64, 0)),
}
"""Values that a field must not have, by its rule."""

RULES = {
    "a count": """
        bandit_window batch_size channels clip_decay_steps core_size distillation_updates embedding_size
        embedding_steps image_features learning_rate_decay_steps max_lifelong n_step neighbours noise_period num_arms
        num_epochs num_heads num_minibatches num_quantiles num_samples penalty_samples policy_period random_shift roots
        sgd_steps_per_call state_size support_size target_period temperature_steps unroll_steps variable_period""",
    "a number of steps or the like": """
        blocks epsilon_decay_steps pretrain_steps quiet_steps random_steps sampled_moves""",
    "above 0": """
        adam_epsilon clip critic_learning_rate distance_horizon dual_learning_rate epsilon epsilon_mean epsilon_penalty
        epsilon_stddev error_horizon huber_delta imitation_alpha init_alpha_mean init_alpha_stddev init_stddev
        init_temperature inverse_temperature kernel_epsilon learning_rate max_abs_observation max_abs_reward max_c
        max_gradient_norm max_policy_gradient max_rho max_target_noise max_weight min_stddev noisy_sigma
        policy_learning_rate rescaling_epsilon reward_scale rmsprop_epsilon target_kl temperature value_clip
        value_horizon""",
    "at least 0": """
        bandit_scale beta cluster_distance consistency_coef demo_priority_offset embedding_decay
        embedding_learning_rate entropy_coef epsilon_steepness extrinsic_coef intrinsic_coef l2_coef logits_coef margin
        margin_coef n_step_coef noise_stddev penalty_coef prior_scale quantile_kappa reward_coef target_noise_stddev
        value_coef weight_decay""",
    "a share": """
        bandit_epsilon discount epsilon_base epsilon_end epsilon_start evaluation_epsilon expectile exploiting_share
        gae_lambda intrinsic_discount least_discount middle_discount priority_max_share random_share reanalyze
        retrace_epsilon retrace_lambda rmsprop_decay target_entropy_share threshold""",
    "a share above 0": "mask_probability target_rate",
    "layers": "hidden_sizes",
    "at least one layer": "critic_sizes policy_sizes",
}
"""The names of fields, by their rule; a name has the same rule in all configs."""

_Q_LEARNING = {"dqn", "rainbow", "apex", "dqfd", "bdqn", "discrete_cql", "bcq", "discrete_sqil"}
STRICTER = {
    "a count": {("epsilon_decay_steps", name) for name in _Q_LEARNING - {"apex", "bdqn"}},
    "at least one layer": {("hidden_sizes", name) for name in builders.AGENTS.keys() - _Q_LEARNING},
}
"""Fields of single agents with a stricter rule than others' of the name."""

WITH_OTHERS = {"memory_rows", "num_atoms", "v_max", "v_min", "target_entropy_per_value", "min_log_stddev"}
"""Fields whose rules depend on other fields, or are their own; the agents' tests have them."""


def fields_of(name: str) -> list[str]:
    """The fields of an agent's config that hold numbers."""
    config = builders.load(name)().config
    hints = types.hints_of(type(config))
    return [
        field.name
        for field in dataclasses.fields(config)
        if any(each in (int, float) or typing.get_origin(each) is tuple for each in types.options_of(hints[field.name]))
    ]


def refusal(config: object, field: str, value: object) -> str:
    """What a config says of a value; empty if it takes it."""
    try:
        dataclasses.replace(config, **{field: value})  # type: ignore[type-var]
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("rule", WRONG)
def test_every_agents_config_refuses_values_that_break_the_rule_of_a_field(rule):
    named, wrong = set(RULES[rule].split()), []
    for agent in builders.AGENTS:
        config = builders.load(agent)().config
        fields = {field for field in fields_of(agent) if field in named or (field, agent) in STRICTER.get(rule, ())}
        for field, value in itertools.product(fields, WRONG[rule]):
            if not refusal(config, field, value).startswith(f"{field} is "):
                wrong.append((agent, field, value))
    assert wrong == []


def test_every_number_in_an_agents_config_has_a_rule():
    known = {name for names in RULES.values() for name in names.split()} | WITH_OTHERS
    assert {field for agent in builders.AGENTS for field in fields_of(agent)} == known
