"""Two transitions of one continuous action, for learner steps that tests compute by hand."""

import numpy as np

from acme_ext.types import Transition

BATCH = Transition(
    observation=np.array([[1, 0], [0, 1]], np.float32),
    action=np.array([[1.0], [-0.5]], np.float32),
    reward=np.array([1.0, -1.0], np.float32),
    discount=np.array([0.5, 0.0], np.float32),
    next_observation=np.array([[0, 1], [1, 0]], np.float32),
)
