"""Rows that store each frame of stacked observations once.

Consecutive observations of an Atari game share three of their four frames, see `specs.StackedFrames`. A row holds the
frames of its observations in order, and the index at which each observation's stack begins. The compiled step rebuilds
the stacks. This is lossless: an observation that doesn't continue the previous stack, as after padding, starts a new
one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tree

from acme_ext.errors import RunError
from acme_ext.replay.rows import Layout
from acme_ext.specs import StackedFrames
from acme_ext.types import Array, Tree


class Timeline(NamedTuple):
    """Consecutive observations in a row."""

    leaves: tuple[int, ...]  # indices of their leaves in `tree.flatten`: one per time, or one leaf with time first
    frames: int  # number of frames that are stored for all of them
    step: int  # usual number of new frames from one stack to the next


def layout(fields: Tree, observations: Tree, at: tuple[str, ...], steps: int, *, breaks: int = 0) -> Layout:
    """Returns the layout of a row of `fields`; if observations are stacks of frames, each frame is stored once.

    Args:
        fields: a Transition or Sequence of arrays, as for `Layout`.
        observations: specs of one environment's observations.
        at: names of the fields that hold observations, earlier ones first.
        steps: steps from the first observation to the last.
        breaks: maximum number of observations that don't continue the previous stack.
    """
    numbers = tree.unflatten_as(fields, list(range(len(tree.flatten(fields)))))
    timelines = []
    for place, spec in enumerate(tree.flatten(observations)):
        if isinstance(spec, StackedFrames):
            leaves = tuple(tree.flatten(getattr(numbers, name))[place] for name in at)
            depth, times = spec.shape[-1], len(at) if len(at) > 1 else steps + 1
            frames = steps + (1 + breaks) * depth
            if frames < times * depth:
                timelines.append(Timeline(leaves, frames, steps if len(at) > 1 else 1))
    return FrameLayout(fields, timelines) if timelines else Layout(fields)


class FrameLayout(Layout):
    """A `Layout` whose rows store each frame of some timelines once.

    Args:
        fields: the nest of fields, as for `Layout`.
        timelines: timelines of leaves `[H, W, K]`, or of one leaf `[N, H, W, K]`, with K frames in a stack, the newest
            last.
    """

    def __init__(self, fields: Tree, timelines: Sequence[Timeline]):
        self._fields, self._timelines = fields, tuple(timelines)
        leaves = tree.flatten(fields)
        stacked = {number for timeline in timelines for number in timeline.leaves}
        self._others = [number for number in range(len(leaves)) if number not in stacked]
        kept = [leaves[number] for number in self._others]
        self._depths = []
        for timeline in timelines:
            first = leaves[timeline.leaves[0]]
            times = first.shape[0] if len(first.shape) == 4 else len(timeline.leaves)
            self._depths.append(first.shape[-1])
            kept += [np.zeros((timeline.frames, *first.shape[-3:-1]), first.dtype), np.zeros(times, np.uint16)]
        super().__init__(kept)

    def pack(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout.pack`; raises RunError if the observations don't share frames as their spec says."""
        kept = [leaves[number] for number in self._others]
        for timeline in self._timelines:
            kept += _once(_frames_first([leaves[number] for number in timeline.leaves]), timeline)
        return super().pack(kept)

    def unpack(self, rows: Array) -> Tree:
        """See `Layout.unpack`."""
        kept = super().unpack(rows)
        leaves = dict(zip(self._others, kept, strict=False))
        parts = iter(kept[len(self._others) :])
        for timeline, depth in zip(self._timelines, self._depths, strict=True):
            stacks = _again(next(parts), next(parts), depth)
            if len(timeline.leaves) == 1:
                leaves[timeline.leaves[0]] = stacks
            else:
                leaves.update({number: stacks[..., time, :, :, :] for time, number in enumerate(timeline.leaves)})
        return tree.unflatten_as(self._fields, [leaves[number] for number in range(len(leaves))])


def _frames_first(leaves: list[np.ndarray]) -> np.ndarray:
    """Returns the stacks of a timeline's leaves as `[M, N, K, H, W]`."""
    stacks = leaves[0] if leaves[0].ndim == 5 else np.stack(leaves, axis=1)
    result = np.empty((*stacks.shape[:2], stacks.shape[-1], *stacks.shape[2:4]), stacks.dtype)
    for number in range(stacks.shape[-1]):  # faster than a transposed copy
        result[:, :, number] = stacks[..., number]
    return result


def _once(stacks: np.ndarray, timeline: Timeline) -> list[np.ndarray]:
    """Returns the frames `[M, frames, H, W]` of stacks `[M, N, K, H, W]`, and each stack's first index `[M, N]`."""
    rows, times, depth = stacks.shape[:3]
    start = np.zeros((rows, times), np.uint16)
    shifts = [timeline.step, *(shift for shift in range(depth) if shift != timeline.step)]
    for time in range(1, times):
        before, now = stacks[:, time - 1], stacks[:, time]
        ahead, left = np.full(rows, depth), np.arange(rows)
        for shift in shifts:
            same = (now[left, : depth - shift] == before[left, shift:]).all(axis=(1, 2, 3))
            ahead[left[same]] = shift
            left = left[~same]
            if not len(left):
                break
        start[:, time] = start[:, time - 1] + ahead
    if start[:, -1].max(initial=0) + depth > timeline.frames:
        raise RunError(
            f"the environment's spec says that an observation's {depth} frames are the newest ones of its episode "
            "(StackedFrames), and they are not: the observation after one holds other frames."
        )
    frames = np.zeros((rows, timeline.frames, *stacks.shape[3:]), stacks.dtype)
    frames[np.arange(rows)[:, None, None], start[:, :, None] + np.arange(depth)] = stacks
    return [frames, start]


def _again(frames: Array, start: Array, depth: int) -> Array:
    """Returns the stacks `[..., N, H, W, K]` in frames `[..., frames, H, W]` that begin at `start` `[..., N]`."""
    batch = frames.shape[:-3]
    frames, start = frames.reshape(-1, *frames.shape[-3:]), start.reshape(-1, start.shape[-1])
    index = start[:, :, None].astype(np.int32) + np.arange(depth)
    stacks = frames[np.arange(len(frames))[:, None, None], index].transpose(0, 1, 3, 4, 2)
    return stacks.reshape(*batch, *stacks.shape[1:])
