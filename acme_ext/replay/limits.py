"""Rate limits: how many samples are allowed per insert. A limit that could cause a deadlock is refused."""

import dataclasses
import math

from acme_ext.errors import UsageError


@dataclasses.dataclass(frozen=True)
class RateLimit:
    """A limit on the ratio between samples and inserts of a table.

    After `min_size` inserts, the table keeps `inserts * samples_per_insert - samples` within `tolerance` of
    `min_size * samples_per_insert`. Below this range readers wait, and above it writers wait (Reverb's
    SampleToInsertRatio).

    Attributes:
        samples_per_insert: items sampled for each inserted item; B / k for a learner that makes one update with a batch
            of B every k environment steps. None: readers and writers never wait for each other once `min_size` is
            reached.
        min_size: items in the table before the first sample.
        tolerance: number of samples by which readers may get ahead or fall behind; at least max(1,
            samples_per_insert). None: `32 * max(1, samples_per_insert)`.
    """

    samples_per_insert: float | None = None
    min_size: int = 1
    tolerance: float | None = None

    def __post_init__(self):
        ratio = self.samples_per_insert
        if ratio is not None and not (math.isfinite(ratio) and ratio > 0):
            raise UsageError(f"samples_per_insert is {ratio}: it must be a positive number, or None for no limit.")
        if self.min_size < 1:
            raise UsageError(f"min_size is {self.min_size}: a table needs at least 1 item before it can be sampled.")
        if self.tolerance is None:
            return
        if ratio is None:
            raise UsageError("tolerance has no meaning without samples_per_insert: give both or neither.")
        if not math.isfinite(self.tolerance):
            raise UsageError(
                f"tolerance is {self.tolerance}: for no limit, leave samples_per_insert and tolerance out."
            )
        if self.tolerance < max(1.0, ratio):
            raise UsageError(
                f"tolerance is {self.tolerance}: below max(1, samples_per_insert) = {max(1.0, ratio):g} readers and "
                f"writers could block each other for ever; give at least {max(1.0, ratio):g}."
            )

    @property
    def error_buffer(self) -> float:
        """The tolerance or its default, in samples."""
        ratio = self.samples_per_insert or 1.0
        return self.tolerance if self.tolerance is not None else 32 * max(1.0, ratio)

    def check_table(self, max_size: int) -> None:
        """Raises UsageError if a table of `max_size` items could never be sampled under this limit."""
        if max_size < self.min_size:
            raise UsageError(
                f"the table holds at most {max_size} items but may be sampled only from min_size = {self.min_size} on: "
                f"give min_size <= {max_size} or a larger max_size."
            )

    def divided(self, parts: int) -> "RateLimit":
        """Returns this limit for one of `parts` tables that share the items, or for items that each hold `parts` items.

        The tolerance is never below the required minimum.
        """
        tolerance = self.tolerance
        if tolerance is not None:
            tolerance = max(tolerance / parts, 1.0, self.samples_per_insert or 1.0)
        return dataclasses.replace(self, min_size=-(-self.min_size // parts), tolerance=tolerance)

    def samples_allowed(self, inserts: int) -> float:
        """Returns the total number of samples that are allowed after a total of `inserts` inserts."""
        if inserts < self.min_size:
            return 0
        if self.samples_per_insert is None:
            return math.inf
        low, _ = self.bounds(self.samples_per_insert)
        balance = inserts * self.samples_per_insert
        allowed = math.floor(balance - low)
        # Reverb allows the last sample if `balance - samples >= low`, which is exact. The difference above may have
        # been rounded up to a whole number, and a reader that waits for one sample too many would wait forever.
        if balance - allowed < low:
            allowed -= 1
        return max(0, allowed)

    def inserts_allowed(self, samples: int) -> float:
        """Returns the total number of inserts that are allowed after a total of `samples` samples."""
        if self.samples_per_insert is None:
            return math.inf
        _, high = self.bounds(self.samples_per_insert)
        return max(self.min_size, math.floor((high + samples) / self.samples_per_insert))

    def bounds(self, ratio: float) -> tuple[float, float]:
        """Returns the values of `inserts * ratio - samples` below which readers wait, and above which writers wait."""
        middle = ratio * self.min_size
        low, high = middle - self.error_buffer, middle + self.error_buffer
        while high - low < 2 * max(1.0, ratio):  # Reverb refuses this; rounding can cause it.
            high = math.nextafter(high, math.inf)
        return low, high
