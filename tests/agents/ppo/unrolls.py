"""Unrolls to learn from, whose arrays are random where a test doesn't care."""

from typing import Any

import numpy as np

from acme_ext.acting.stochastic import Behaviour
from acme_ext.types import Sequence


def random_unrolls(length: int, batch: int, shape: tuple[int, ...] = (3,), **fields: Any) -> Sequence:
    """Returns unrolls in the middle of endless episodes, with observations of a shape and 4 actions that were all taken
    with probability 1/4; `fields` are set or, in the extras, replaced.
    """
    rng = np.random.default_rng(0)
    extras = Behaviour(
        np.full((length, batch), np.log(0.25), np.float32), np.zeros((length, batch), np.int32)
    )._replace(**fields.pop("extras", {}))
    unrolls = Sequence(
        observation=rng.normal(size=(length + 1, batch, *shape)).astype(np.float32),
        reward=rng.normal(size=(length + 1, batch)).astype(np.float32),
        first=np.zeros((length + 1, batch), np.bool_),
        action=rng.integers(0, 4, (length, batch)).astype(np.int32),
        discount=np.full((length, batch), 0.9, np.float32),
        mask=np.ones((length, batch), np.float32),
        extras=extras,
    )
    return unrolls._replace(**fields)
