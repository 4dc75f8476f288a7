"""The kind of an environment, independent of its family; it selects the agents' presets."""

import re
from collections.abc import Callable
from typing import Any

_KINDS = (
    (r"atari:.*|gym:ALE/.*|envpool:\w+-v5", "atari"),
    (r"minatar:.*|gym:MinAtar/.*|jax:minatar-.*", "minatar"),
    (r"board:.*", "board"),
    # EnvPool has the control suite's tasks as version 1, and Gymnasium's MuJoCo tasks as later ones.
    (
        r"dmc:.*|gym:dm_control/.*|envpool:(AcrobotSwingup|BallInCup|Cartpole[A-Z]|Cheetah|Finger|Fish|Hopper|Humanoid|"
        r"Manipulator|PendulumSwingup|PointMass|Reacher|Swimmer|Walker)\w*-v1",
        "dmc",
    ),
)


def kind(environment: str | Callable[..., Any]) -> str | None:
    """Returns `atari`, `minatar`, `board` or `dmc`; None for other environments, and for those given as functions."""
    if not isinstance(environment, str):
        return None
    return next((kind for pattern, kind in _KINDS if re.fullmatch(pattern, environment)), None)
