"""The replay of agents that learn from each unroll once, in order."""

from typing import Any

from acme_ext.replay.sequences import SequenceReplay
from acme_ext.types import EnvironmentSpec, Tree


def unroll_queue(spec: EnvironmentSpec, config: Any, extras: Tree, state: Tree = ()) -> SequenceReplay:
    """Returns the queue of unrolls that a config describes: its `batch_size`, `unroll_length`, `discount` and
    `max_queue_size`.

    Args:
        spec: of the environment.
        config: the agent's.
        extras: what the policy gives with an action of one environment, as arrays that stand for it.
        state: likewise the recurrent state.
    """
    return SequenceReplay(
        spec=spec,
        batch_size=config.batch_size,
        max_size=config.max_queue_size,
        order="queue",
        extras=extras,
        table="unrolls",
        length=config.unroll_length,
        period=config.unroll_length,
        discount=config.discount,
        cross_episodes=True,
        state=state,
    )
