"""Learns on one device and on four of the host's, and says how the two compare; run as a script."""

import json

import jax
import numpy as np
from learners import Mailbox, dqn, dqn_batches, join

from acme_ext.learning.learner import Learner


def learn(prioritized, steps_per_call, devices):
    core, replay = dqn(prioritized)
    mailbox = Mailbox() if prioritized else None
    learner = Learner(
        core,
        join(dqn_batches(8, 16), steps_per_call),
        replay.decode,
        jax.random.key(0),
        batch_size=16,
        steps_per_call=steps_per_call,
        priorities=mailbox,
        importance_exponent=replay.importance_exponent_at if prioritized else None,
        devices=devices,
    )
    for _ in range(8 // steps_per_call):
        learner.step()
    return learner, mailbox


def params_of(state):
    """The network's parameters in the state of a learner, prioritized or not."""
    while hasattr(state, "core"):
        state = state.core
    return state.params


def devices_of(state):
    """The numbers of devices that the parameters lie on."""
    return sorted({len(leaf.sharding.device_set) for leaf in jax.tree.leaves(params_of(state))})


def largest_difference(a, b):
    """Between the parameters of two states."""
    pairs = zip(jax.tree.leaves(params_of(a)), jax.tree.leaves(params_of(b)), strict=True)
    return max(float(np.abs(np.asarray(x) - np.asarray(y)).max()) for x, y in pairs)


def compare(prioritized, steps_per_call):
    one, one_mail = learn(prioritized, steps_per_call, None)
    four, four_mail = learn(prioritized, steps_per_call, jax.devices())
    state = four.save()
    priorities = 0.0
    if prioritized:
        assert one_mail.pairs().keys() == four_mail.pairs().keys()
        priorities = max(abs(value - four_mail.pairs()[key]) for key, value in one_mail.pairs().items())
    losses, where = [one.metrics()["loss"], four.metrics()["loss"]], devices_of(state)
    # A learner goes on from a state that another number of devices has saved.
    four.restore(jax.device_get(one.save()))
    return {
        "devices": where,
        "restored": devices_of(four.save()),
        "difference": largest_difference(one.save(), state),
        "moved": largest_difference(dqn(prioritized)[0].init(jax.random.key(0)), state),
        "priorities": priorities,
        "losses": losses,
        "variables": len(four.get_variables(["policy"])),
    }


if __name__ == "__main__":
    assert len(jax.devices()) == 4
    print(json.dumps([compare(False, 1), compare(True, 4)]))
