import jax
import numpy as np
import pytest

from acme_ext.agents.alphazero import symmetries
from acme_ext.envs.board_rules import rules_of


@pytest.mark.parametrize(("game", "count"), [("tic_tac_toe", 8), ("connect_four", 2), ("hex", 1)])
def test_what_is_turned_is_played_as_what_is_not(game, count):
    """A game and its turned copy have the same legal moves, boards and outcome at every move."""
    rules, known, rng = rules_of(game), symmetries.of_game(game), np.random.default_rng(0)
    step = jax.jit(rules.step)
    assert len({fields.tobytes() for fields in known.fields}) == len(known.fields) == count
    for fields, actions in zip(*known, strict=True):
        state = turned = rules.init(jax.random.key(1))
        for _ in range(12):
            assert (np.asarray(turned.legal_action_mask) == np.asarray(state.legal_action_mask)[actions]).all()
            before, after = (np.asarray(s.observation) for s in (state, turned))
            assert (after.reshape(len(fields), -1) == before.reshape(len(fields), -1)[fields]).all()
            if state.terminated:
                break
            there = int(rng.choice(np.nonzero(np.asarray(turned.legal_action_mask))[0]))
            state, turned = step(state, int(actions[there])), step(turned, there)
        assert (np.asarray(state.rewards) == np.asarray(turned.rewards)).all()


def test_positions_and_policies_are_turned_together():
    fields = np.arange(9, dtype=np.float32)
    seen = {"board": np.tile(fields.reshape(3, 3, 1), (64, 1, 1, 2)), "action_mask": np.tile(fields > 4, (64, 1))}
    turned, policy = symmetries.drawn(jax.random.key(0), "tic_tac_toe", seen, np.tile(fields, (64, 1)))
    assert len(np.unique(policy, axis=0)) == 8
    np.testing.assert_array_equal(np.asarray(turned["board"])[..., 1].reshape(64, 9), policy)
    np.testing.assert_array_equal(turned["action_mask"], np.asarray(policy) > 4)
