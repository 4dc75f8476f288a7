"""Images of environments, for videos.

An environment can have a method `render() -> uint8 [H, W, 3]`, and an attribute `render_fps`, its number of steps per
second. MuJoCo renders dm_control's environments, in software if there is no display. For all others, an observation is
shown if it is an image.
"""

import ctypes.util
import os
import sys
from collections.abc import Iterator
from typing import Any

import dm_env
import numpy as np
import tree
from dm_env import specs

from acme_ext.errors import UsageError
from acme_ext.specs import PICTURE_SIDE
from acme_ext.types import Tree
from acme_ext.utils import system

_HEIGHT, _WIDTH = 240, 320  # size of MuJoCo's images
_LEAST = 4  # minimum size of an image; smaller arrays are not images
_SHORTEST = 160  # minimum size of a video's shorter side in pixels
_FPS = 10.0  # the default


def prepare() -> None:
    """Lets MuJoCo and pygame render on a Linux without a display; must be called before they are imported."""
    if os.environ.get("DISPLAY") or not system.is_linux():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # otherwise pygame complains about the missing display
    if "dm_control" in sys.modules or "MUJOCO_GL" in os.environ:
        return
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return


def picture(environment: dm_env.Environment, observation: Tree) -> np.ndarray:
    """Returns an image of an environment's current state, uint8 `[H, W, 3]`, at least 160 pixels high and wide.

    Args:
        environment: a single environment.
        observation: its newest observation.

    Raises:
        UsageError: the environment can't be rendered.
    """
    for inner in _layers(environment):
        if callable(render := getattr(inner, "render", None)):
            return _enlarged(_colour(np.asarray(render()), type(inner).__name__))
        if hasattr(inner, "physics"):
            return _enlarged(_by_mujoco(inner))
    return _enlarged(_seen(environment, observation))


def frames_per_second(environment: dm_env.Environment) -> float:
    """Returns an environment's number of steps per second; 10 if it doesn't specify one."""
    for inner in _layers(environment):
        if fps := getattr(inner, "render_fps", None):
            return float(fps)
        if callable(seconds := getattr(inner, "control_timestep", None)):
            return 1 / float(seconds())  # type: ignore[arg-type]
    return _FPS


def _layers(environment: Any) -> Iterator[Any]:
    """Yields the environment and the dm_envs that it wraps."""
    while isinstance(environment, dm_env.Environment):
        yield environment
        environment = getattr(environment, "environment", None)


def _by_mujoco(environment: Any) -> np.ndarray:
    try:
        return environment.physics.render(_HEIGHT, _WIDTH, camera_id=0)
    except Exception as error:  # MuJoCo's own kinds, and OpenGL's
        raise UsageError(
            f"MuJoCo can't draw here ({str(error).splitlines()[0] if str(error) else type(error).__name__}): without a "
            "display it needs the library EGL or OSMesa, and MUJOCO_GL=egl or MUJOCO_GL=osmesa in the environment when "
            "Python starts."
        ) from error


def _seen(environment: dm_env.Environment, observation: Tree) -> np.ndarray:
    """Returns the first field of an observation that is an image."""
    stated = environment.observation_spec()
    for spec, value in zip(tree.flatten(stated), tree.flatten_up_to(stated, observation), strict=True):
        shape = spec.shape
        if len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4)):
            if min(shape[:2]) < _LEAST:
                continue
            value = np.asarray(value)
            if len(shape) == 3 and shape[2] == 4:
                if value.dtype != np.uint8 and min(shape[:2]) < PICTURE_SIDE:
                    continue  # a grid with four channels, such as a board with its planes
                value = value[..., -1]  # a stack, the newest last
            if value.dtype == np.uint8:
                return _colour(value, "the observation")
            low, high = 0.0, 1.0
            if isinstance(spec, specs.BoundedArray) and np.all(np.isfinite(spec.maximum)):
                low, high = float(np.min(spec.minimum)), float(np.max(spec.maximum))
            return _colour((255 * np.clip((value - low) / (high - low), 0, 1)).astype(np.uint8), "the observation")
    raise UsageError(
        "the environment can't be drawn: it has no method render() that returns a picture, uint8 [H, W, 3], and its "
        "observation is not a picture."
    )


def _colour(picture: np.ndarray, what: str) -> np.ndarray:
    if picture.ndim == 2 or (picture.ndim == 3 and picture.shape[2] == 1):
        picture = np.repeat(picture.reshape(*picture.shape[:2], 1), 3, axis=2)
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
        raise UsageError(f"{what} gives pictures {picture.dtype} {list(picture.shape)}: uint8 [H, W, 3] is needed.")
    return picture


def _enlarged(picture: np.ndarray) -> np.ndarray:
    """Enlarges a small image by repeating pixels, and crops it to an even size, which MP4 needs."""
    times = -(-_SHORTEST // min(picture.shape[:2]))
    picture = picture.repeat(times, axis=0).repeat(times, axis=1)
    return picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2]
