"""The 57 games of the Atari benchmark: the scores of a human and of a random player, and the aggregation of scores.

The scores are those of Wang et al. 2016 (Dueling network architectures for deep reinforcement learning, table 2), for
episodes that begin with up to 30 no-ops. They were copied from `dqn_zoo/atari_data.py` of google-deepmind/dqn_zoo. All
114 scores agree with the copy of Wang's table in seungjaeryanlee/rldb. Some other lists have a score of 0 for the
random player of Video Pinball.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from acme_ext.errors import UsageError, nearest


class Players(NamedTuple):
    """The reference scores of a game."""

    random: float
    human: float


SCORES: dict[str, Players] = {
    "Alien": Players(227.8, 7127.7),
    "Amidar": Players(5.8, 1719.5),
    "Assault": Players(222.4, 742.0),
    "Asterix": Players(210.0, 8503.3),
    "Asteroids": Players(719.1, 47388.7),
    "Atlantis": Players(12850.0, 29028.1),
    "BankHeist": Players(14.2, 753.1),
    "BattleZone": Players(2360.0, 37187.5),
    "BeamRider": Players(363.9, 16926.5),
    "Berzerk": Players(123.7, 2630.4),
    "Bowling": Players(23.1, 160.7),
    "Boxing": Players(0.1, 12.1),
    "Breakout": Players(1.7, 30.5),
    "Centipede": Players(2090.9, 12017.0),
    "ChopperCommand": Players(811.0, 7387.8),
    "CrazyClimber": Players(10780.5, 35829.4),
    "Defender": Players(2874.5, 18688.9),
    "DemonAttack": Players(152.1, 1971.0),
    "DoubleDunk": Players(-18.6, -16.4),
    "Enduro": Players(0.0, 860.5),
    "FishingDerby": Players(-91.7, -38.7),
    "Freeway": Players(0.0, 29.6),
    "Frostbite": Players(65.2, 4334.7),
    "Gopher": Players(257.6, 2412.5),
    "Gravitar": Players(173.0, 3351.4),
    "Hero": Players(1027.0, 30826.4),
    "IceHockey": Players(-11.2, 0.9),
    "Jamesbond": Players(29.0, 302.8),
    "Kangaroo": Players(52.0, 3035.0),
    "Krull": Players(1598.0, 2665.5),
    "KungFuMaster": Players(258.5, 22736.3),
    "MontezumaRevenge": Players(0.0, 4753.3),
    "MsPacman": Players(307.3, 6951.6),
    "NameThisGame": Players(2292.3, 8049.0),
    "Phoenix": Players(761.4, 7242.6),
    "Pitfall": Players(-229.4, 6463.7),
    "Pong": Players(-20.7, 14.6),
    "PrivateEye": Players(24.9, 69571.3),
    "Qbert": Players(163.9, 13455.0),
    "Riverraid": Players(1338.5, 17118.0),
    "RoadRunner": Players(11.5, 7845.0),
    "Robotank": Players(2.2, 11.9),
    "Seaquest": Players(68.4, 42054.7),
    "Skiing": Players(-17098.1, -4336.9),
    "Solaris": Players(1236.3, 12326.7),
    "SpaceInvaders": Players(148.0, 1668.7),
    "StarGunner": Players(664.0, 10250.0),
    "Surround": Players(-10.0, 6.5),
    "Tennis": Players(-23.8, -8.3),
    "TimePilot": Players(3568.0, 5229.2),
    "Tutankham": Players(11.4, 167.6),
    "UpNDown": Players(533.4, 11693.2),
    "Venture": Players(0.0, 1187.5),
    "VideoPinball": Players(16256.9, 17667.9),
    "WizardOfWor": Players(563.5, 4756.5),
    "YarsRevenge": Players(3092.9, 54576.9),
    "Zaxxon": Players(32.5, 9173.3),
}


def check(games: Sequence[str]) -> None:
    """Raises UsageError if a game is not one of the 57, or if it is listed twice."""
    for game in games:
        if game not in SCORES:
            raise UsageError(f"{game!r} is not one of the 57 games: {nearest(game, SCORES)}")
    if len(set(games)) < len(games):
        raise UsageError("a game is listed twice.")


def normalized(game: str, score: float) -> float:
    """Returns the human-normalised score: 0 for the random player's score, and 1 for the human's."""
    random, human = SCORES[game]
    return (score - random) / (human - random)


class Estimate(NamedTuple):
    """An aggregate over games and seeds."""

    value: float
    interval: tuple[float, float] | None  # 95%, by stratified bootstrap; None for a single seed


class Aggregates(NamedTuple):
    """Aggregates of the human-normalised scores of several games and seeds.

    Mean, median and percentile are computed from the games' means over seeds. The interquartile mean is the mean of the
    middle half of all runs (Agarwal et al. 2021, Deep RL at the edge of the statistical precipice).
    """

    iqm: Estimate
    median: Estimate
    mean: Estimate
    percentile_5: Estimate
    above_human: int  # games whose mean is above 1


def aggregate(scores: Mapping[str, Sequence[float]], *, resamples: int = 2_000, seed: int = 0) -> Aggregates:
    """Returns the aggregates of human-normalised scores.

    Args:
        scores: for each game, the scores of all seeds; the number of seeds must be the same for all games.
        resamples: number of bootstrap samples; the runs of each game are resampled separately.
        seed: random seed of the bootstrap.
    """
    from rliable import library, metrics

    runs = np.array(list(scores.values()), np.float64).T  # [seeds, games]
    by_name = {
        "iqm": metrics.aggregate_iqm,
        "median": metrics.aggregate_median,
        "mean": metrics.aggregate_mean,
        "percentile_5": lambda runs: np.percentile(runs.mean(axis=0), 5),
    }

    def figures(runs: np.ndarray) -> np.ndarray:
        return np.array([figure(runs) for figure in by_name.values()])

    intervals: list[tuple[float, float] | None] = [None] * len(by_name)
    if len(runs) > 1:
        before = np.random.get_state()
        np.random.seed(seed)  # rliable draws from NumPy's global state
        try:
            _, found = library.get_interval_estimates({"": runs}, figures, reps=resamples)
        finally:
            np.random.set_state(before)
        intervals = [(float(low), float(high)) for low, high in found[""].T]
    estimates = [Estimate(float(v), i) for v, i in zip(figures(runs), intervals, strict=True)]
    return Aggregates(**dict(zip(by_name, estimates, strict=True)), above_human=int(np.sum(runs.mean(axis=0) > 1)))
