import jax
import numpy as np
import pytest

from acme_ext.ops.pictures import random_shift

KEY = jax.random.key(0)


def pictures(batch: int = 64, height: int = 6, width: int = 8, channels: int = 3) -> np.ndarray:
    """Pictures whose every value is another one."""
    return np.arange(batch * height * width * channels, dtype=np.int32).reshape(batch, height, width, channels)


def padded_and_cut(picture: np.ndarray, most: int) -> dict[bytes, tuple[int, int]]:
    """Every shift of a picture `[H, W, C]` as the paper makes it: {its bytes: (down, right)}."""
    height, width, _ = picture.shape
    padded = np.pad(picture, ((most, most), (most, most), (0, 0)), mode="edge")
    shifts = range(-most, most + 1)
    return {
        padded[most - y : most - y + height, most - x : most - x + width].tobytes(): (y, x)
        for y in shifts
        for x in shifts
    }


def test_a_shift_of_0_changes_nothing():
    np.testing.assert_array_equal(random_shift(KEY, pictures(), 0), pictures())


@pytest.mark.parametrize("most", [1, 4])
def test_each_picture_is_padded_by_its_edge_and_cut_at_a_place_of_its_own(most):
    before = pictures(512)
    after = np.asarray(random_shift(KEY, before, most))
    shifts = [padded_and_cut(a, most)[b.tobytes()] for a, b in zip(before, after, strict=True)]
    # All shifts there are occur, each about as often.
    places = (2 * most + 1) ** 2
    counts = np.unique(shifts, axis=0, return_counts=True)[1]
    assert len(counts) == places
    assert counts.max() < 512 / places + 5 * np.sqrt(512 / places)


def test_a_picture_of_one_value_stays_as_it_is():
    same = np.full((3, 5, 5, 2), 7, np.uint8)
    np.testing.assert_array_equal(random_shift(KEY, same, 4), same)


def test_channels_move_together():
    frame = pictures(channels=1)
    after = np.asarray(random_shift(KEY, np.concatenate([frame, frame + 1], axis=-1), 2))
    np.testing.assert_array_equal(after[..., 1], after[..., 0] + 1)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_type_is_kept(dtype):
    assert random_shift(KEY, pictures(2).astype(dtype), 1).dtype == dtype


def test_a_key_gives_the_same_shifts_again_and_another_key_others():
    first, again, other = (np.asarray(random_shift(jax.random.key(seed), pictures(), 3)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
