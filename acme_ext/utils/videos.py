"""Writes videos as MP4 or GIF."""

import contextlib
import errno
import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from acme_ext.errors import UsageError
from acme_ext.utils import files, install

_GIF_FPS = 50.0  # browsers slow down faster GIFs


def check_video_path(path: Path) -> None:
    """Raises UsageError if a video can't be written to this path: its ending is unknown, or a package is missing."""
    needs = {".mp4": "imageio_ffmpeg", ".gif": "PIL"}
    if path.suffix.lower() not in needs:
        raise UsageError(f"{path} is not a name for a video: it must end in .mp4 or .gif.")
    if importlib.util.find_spec(needs[path.suffix.lower()]) is None:
        raise UsageError(f"a video needs {needs[path.suffix.lower()]}, not installed here: {install.command('video')}")


def write(path: Path, pictures: Iterator[np.ndarray], fps: float) -> None:
    """Writes a video, atomically.

    Args:
        path: ends in `.mp4` (H.264) or `.gif`.
        pictures: images, uint8 `[H, W, 3]`, all of the same, even size.
        fps: frames per second; a GIF with more than 50 skips frames.
    """
    check_video_path(path)
    first = next(pictures)  # rendered before anything is written, because it may raise
    files.make_writable_folder(path.parent)
    with files.replacing(path) as temporary:
        {".mp4": _mp4, ".gif": _gif}[path.suffix.lower()](temporary, first, pictures, fps)


def _mp4(path: Path, first: np.ndarray, rest: Iterator[np.ndarray], fps: float) -> None:
    ffmpeg = importlib.import_module("imageio_ffmpeg")
    height, width = first.shape[:2]
    options: dict[str, Any] = {"fps": fps, "macro_block_size": 2, "output_params": ["-f", "mp4"]}
    video, sent = ffmpeg.write_frames(str(path), (width, height), **options), 1
    with warnings.catch_warnings():
        # JAX warns about every fork, but this one executes another program at once.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
        video.send(None)
        video.send(np.ascontiguousarray(first))  # the first frame
    early = OSError(errno.EIO, "ffmpeg ended early; the disk may be full")
    try:
        for picture in rest:
            try:
                video.send(np.ascontiguousarray(picture))
            except OSError:  # with all of ffmpeg's output
                raise early from None
            sent += 1
    finally:
        video.close()
    # Closing doesn't say whether ffmpeg could write everything.
    with contextlib.suppress(RuntimeError):
        if ffmpeg.count_frames_and_secs(str(path))[0] == sent:
            return
    raise early


def _gif(path: Path, first: np.ndarray, rest: Iterator[np.ndarray], fps: float) -> None:
    image = importlib.import_module("PIL.Image")
    every = int(-(-fps // _GIF_FPS))
    kept = [image.fromarray(first), *(image.fromarray(p) for i, p in enumerate(rest, 1) if i % every == 0)]
    shown = max(20, round(1000 * every / fps))  # milliseconds
    kept[0].save(path, format="GIF", save_all=True, append_images=kept[1:], duration=shown, loop=0)
