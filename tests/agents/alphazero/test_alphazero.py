import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext import builders, envs
from acme_ext.agents.alphazero import learning
from acme_ext.agents.alphazero.config import AlphaZeroConfig
from acme_ext.agents.muzero.config import BOARD, RootsConfig
from acme_ext.ops.search import SearchConfig
from acme_ext.types import Sample
from acme_ext.utils import compiling

CONFIG = AlphaZeroConfig(hidden_sizes=(8,), state_size=8, batch_size=4, roots=200, replay=RootsConfig(length=4))


def won_in_three(builder):
    """Returns an untrained agent's metrics, and those with half the weight, for games in which the third move wins.

    The network's value is 0, and its policy uniform.
    """
    options = {"game_state": True} if builder.name == "alphazero" else {}
    with contextlib.closing(envs.make("board:tic_tac_toe", self_play=True, **options)) as environment:
        agent = builder.make_agent(envs.make_spec(environment))
    batch = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), agent.replay.example(4))
    batch.observation["player"][:] = np.arange(len(batch.reward))[:, None] % 2
    batch.observation["action_mask"][:] = 1
    batch.mask[:3], batch.discount[:2], batch.reward[3] = 1, 1, 1
    batch.extras.policy[..., 0] = 1
    batch.extras.own[:] = 1
    step, state = compiling.jit(agent.core.step), agent.core.init(jax.random.key(0))
    return [step(state, Sample(batch, np.full(4, weight, np.float32)))[1] for weight in (1, 0.5)]


@pytest.mark.parametrize("name", ["alphazero", "muzero"])
def test_a_win_is_a_loss_for_the_player_who_moved_before(name):
    builder = builders.AlphaZero(CONFIG)
    if name == "muzero":
        shared = {f: getattr(CONFIG, f) for f in ("hidden_sizes", "state_size", "batch_size", "roots", "replay")}
        small = {"unroll_steps": 1, "network_kind": "mlp", "search": SearchConfig(simulations=2)}
        builder = builders.MuZero(dataclasses.replace(BOARD, **shared, **small))
    metrics, half = won_in_three(builder)
    assert float(metrics["target_mean"]) == pytest.approx(1 / 3, abs=0.1)  # of 1, -1 and 1
    assert float(half["loss"]) == pytest.approx(float(metrics["loss"]) / 2, rel=1e-5)  # sequences are weighed


def test_the_policy_that_is_learned_is_turned_with_the_board(monkeypatch):
    monkeypatch.setattr(learning.symmetries, "drawn", lambda key, game, seen, policy: (seen, jnp.ones_like(policy) / 9))
    metrics, _ = won_in_three(builders.AlphaZero(CONFIG))
    assert float(metrics["policy_loss"]) == pytest.approx(0, abs=1e-5)  # the untrained network says 1/9 of each
    monkeypatch.undo()
    metrics, _ = won_in_three(builders.AlphaZero(CONFIG))
    assert float(metrics["policy_loss"]) == pytest.approx(np.log(9), rel=1e-5)
