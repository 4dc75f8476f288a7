"""Measures the rates of several contestants, in turns.

The speed of a shared machine varies from second to second. So the contestants take turns in short rounds, and two of
them are compared round by round: their ratio is the median of the rounds' ratios.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A measured program that does units of work.

    Attributes:
        work: does a small amount of work, ideally of some milliseconds, and returns the number of units done.
        finish: waits for asynchronous work that `work` has started; its time counts.
        prepare: warms up before a round; its time doesn't count.
    """

    work: Callable[[], int]
    finish: Callable[[], object] = lambda: None
    prepare: Callable[[], object] = lambda: None


@dataclasses.dataclass(frozen=True)
class Rate:
    """A contestant's rates in each round."""

    rounds: tuple[float, ...]  # units per second
    cpu_us: float | None = None  # CPU time of the whole process per unit, us; median over rounds

    @property
    def per_second(self) -> float:
        """The median over rounds, in units per second."""
        return statistics.median(self.rounds)

    def over(self, other: "Rate") -> float:
        """Returns the ratio of this rate to another one that was measured in turns with it: the median over rounds."""
        return statistics.median(a / b for a, b in zip(self.rounds, other.rounds, strict=True))


def rates(contestants: Mapping[str, Contestant], seconds: float, rounds: int) -> dict[str, Rate]:
    """Measures the contestants in turns, each for `seconds` in total, and returns their rates.

    An extra first round is not measured, because of compilation, buffers and connections. The order of contestants is
    reversed in every other round, so that a contestant doesn't always follow the same one: after a contestant that used
    a single core, the other core is slow at first.
    """
    per_second: dict[str, list[float]] = {name: [] for name in contestants}
    cpu_us: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, contestant in list(contestants.items())[:: -1 if number % 2 else 1]:
            units, wall, cpu = _round(contestant, seconds / rounds)
            if number:
                per_second[name].append(units / wall)
                cpu_us[name].append(1e6 * cpu / units)
    return {name: Rate(tuple(per_second[name]), statistics.median(cpu_us[name])) for name in contestants}


def best(measured: Sequence[Rate]) -> Rate:
    """Returns the fastest of several variants."""
    return max(measured, key=lambda rate: rate.per_second)


def one_after_the_other(parts: Sequence[Rate]) -> Rate:
    """Returns the rate of units that need all of these parts, one after the other."""
    combined = tuple(1 / sum(1 / value for value in values) for values in zip(*(p.rounds for p in parts), strict=True))
    return Rate(combined)


def _round(contestant: Contestant, seconds: float) -> tuple[int, float, float]:
    """Returns the units done in about `seconds`, the time they took and the CPU time, both in seconds."""
    contestant.prepare()
    cpu, start = time.process_time(), time.perf_counter()
    units = contestant.work()
    while time.perf_counter() - start < seconds:
        units += contestant.work()
    contestant.finish()
    return units, time.perf_counter() - start, time.process_time() - cpu


def by_turns(kinds: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Rate]:
    """Returns the rates of runs that return their own rate; in each of the `rounds`, every kind runs once."""
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, rate in kinds.items():
            found[kind].append(rate())
    return {kind: Rate(tuple(values)) for kind, values in found.items()}
