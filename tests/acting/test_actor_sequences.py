"""The actor, its policy's recurrent state and the sequence replay together, through a real Reverb."""

import jax
import numpy as np
import pytest
from worlds import Source, corridors, counting_policy, local_actor

from acme_ext import envs
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.replay.sequences import SequenceReplay


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize(("length", "period"), [(3, 3), (3, 2), (5, 1), (1, 1)])
def test_the_state_stored_is_that_of_the_sequences_first_step(length, period, cross):
    """Stored one unroll late, or one step, it would tell another count."""
    policy, environment = counting_policy(), corridors(8)
    replay = SequenceReplay(
        spec=envs.make_spec(environment),
        batch_size=1,
        order="queue",
        length=length,
        period=period,
        discount=1.0,
        cross_episodes=cross,
        state=jax.tree.map(lambda x: x[0], policy.init_state(1)),
        extras={"count": np.zeros((), np.int32), "place": np.zeros(3, np.float32)},
        max_size=1_000,
    )

    def apply(params, context, observation, state):
        action, state, extras = policy.apply(params, context, observation, state)
        return action, state, {name: extras[name] for name in ("count", "place")}

    server = ReverbStore(replay)
    try:
        writer = replay.writer(server.table.sink(), 8)
        actor = local_actor(policy._replace(apply=apply), Source(), jax.random.key(0), num_envs=8, writer=writer)
        loop = EnvironmentLoop(environment, actor)
        for _ in range(60):
            loop.step()
        writer.flush()
        writer.wait()
        dataset = server.table.batches(writer.inserted)
        batch = replay.decode(next(dataset).rows)
        dataset.close(wake=True)
        writer.close()
    finally:
        server.close()

    # The observation tells (environment, episode, step), and so how many steps the policy had counted before it.
    step = batch.observation[0, :, 2]
    assert 0 < np.count_nonzero(step) < len(step)
    np.testing.assert_array_equal(batch.state["count"], step)
    np.testing.assert_array_equal(batch.state["pair"], np.stack([0.5 * step - 1] * 2, axis=1))
    np.testing.assert_array_equal(batch.first[0], step == 0)
    real = batch.mask.astype(bool)
    np.testing.assert_array_equal(batch.extras["count"][real], batch.observation[:-1, :, 2][real] + 1)
    np.testing.assert_array_equal(batch.extras["place"][real], batch.observation[:-1][real])
    np.testing.assert_array_equal(batch.action[real], batch.extras["count"][real] % 5)
    np.testing.assert_array_equal(batch.reward[1:][real], 1 + batch.action[real])
    if cross and length > 1:  # a sequence of nothing but such a step would tell nothing, and isn't written
        crossing = batch.first[1:] & ~real
        assert crossing.any()
        # The policy has also seen an episode's last observation, and its state goes on to there.
        np.testing.assert_array_equal(batch.extras["count"][crossing], batch.observation[:-1, :, 2][crossing] + 1)
