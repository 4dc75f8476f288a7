"""Go-Explore's exploration phase (Ecoffet et al. 2021, First return, then explore).

The archive has an entry for each cell that was reached: the environment's state and the best known actions to get
there. In each iteration, a cell is sampled, its state is restored, and random actions explore from there. There is no
neural network. `python go_explore.py` prints how many steps this takes to reach the goals of `explore:chain` and
`explore:key_door`, compared with random actions from the start.
"""

import argparse
import copy
import dataclasses
import functools

import numpy as np

from acme_ext.envs.explore import Chain, KeyDoor


@dataclasses.dataclass
class Cell:
    """The best known way to a cell."""

    environment: object  # copy of the environment in this cell
    actions: tuple[int, ...]  # actions from the start to this cell
    score: float  # sum of the rewards on the way
    seen: int = 0  # number of exploration steps that reached this cell

    @property
    def weight(self):
        """The unnormalised probability of selecting the cell (Ecoffet et al. 2021, Methods, 'Cell selection')."""
        return 1 / np.sqrt(self.seen + 1)

    def is_worse_than(self, score, actions):
        return (score, -len(actions)) > (self.score, -len(self.actions))


def cell_of(observation, levels=8):
    """Returns the key of the observation's cell: its numbers, rounded to a few levels.

    Images would also have to be downscaled.
    """
    return np.round(np.asarray(observation) * (levels - 1)).astype(np.uint8).tobytes()


def random_actions(rng, num_actions, steps, repeat):
    """Yields random actions; each one repeats the previous action with probability `repeat`."""
    action = rng.integers(num_actions)
    for _ in range(steps):
        if rng.random() >= repeat:
            action = rng.integers(num_actions)
        yield int(action)


def go_explore(make, *, goal, seed=0, most=200_000, steps=100, repeat=0.95):
    """Explores until a way with a score of `goal` is found, or for `most` steps.

    Args:
        make: makes the environment, a deterministic dm_env that `copy.deepcopy` can copy.
        goal: the target score.
        seed: the random seed.
        most: the maximum number of environment steps.
        steps: steps of exploration from each selected cell; 100 in the paper.
        repeat: see `random_actions`; 0.95 in the paper.

    Returns:
        The actions of that way, or None; the number of steps taken; and the archive, a dict of `Cell` by cell key.
    """
    rng, environment, taken = np.random.default_rng(seed), make(), 0
    num_actions = environment.action_spec().num_values
    archive = {cell_of(environment.reset().observation): Cell(environment, (), 0.0)}
    while taken < most:
        cells = list(archive.values())
        weights = np.array([cell.weight for cell in cells])
        chosen = cells[rng.choice(len(cells), p=weights / weights.sum())]
        environment, actions, score = copy.deepcopy(chosen.environment), chosen.actions, chosen.score
        for action in random_actions(rng, num_actions, steps, repeat):
            timestep = environment.step(action)
            taken, actions, score = taken + 1, (*actions, action), score + float(timestep.reward)
            if score >= goal:
                return actions, taken, archive
            if timestep.last():
                break
            key = cell_of(timestep.observation)
            known = archive.get(key)
            if known is None or known.is_worse_than(score, actions):
                seen = 0 if known is None else known.seen
                known = archive[key] = Cell(copy.deepcopy(environment), actions, score, seen)
            known.seen += 1
    return None, taken, archive


def random_search(make, *, goal, seed=0, most=200_000, repeat=0.0):
    """Takes random actions from the start of episodes; returns the number of steps until a score of `goal`, or None."""
    rng, environment = np.random.default_rng(seed), make()
    environment.reset()
    score = 0.0
    for taken, action in enumerate(random_actions(rng, environment.action_spec().num_values, most, repeat), 1):
        timestep = environment.step(action)
        score = 0.0 if timestep.first() else score + float(timestep.reward)
        if score >= goal:
            return taken
    return None


TASKS = {"chain": (Chain, 30), "key_door": (KeyDoor, 21)}


def main(seeds=5, most=200_000):
    for name, (task, size) in TASKS.items():
        make = functools.partial(task, size=size, max_steps=10 * size)
        for seed in range(seeds):
            actions, taken, archive = go_explore(make, goal=1.0, seed=seed, most=most)
            way = "no way" if actions is None else f"a way of {len(actions)} steps"
            others = [random_search(make, goal=1.0, seed=seed, most=most, repeat=repeat) for repeat in (0.0, 0.95)]
            plain, repeating = (f"not in {most:,}" if steps is None else f"{steps:,}" for steps in others)
            print(f"{name}, seed {seed}: {way} after {taken:,} steps, with {len(archive)} cells;", end=" ")
            print(f"at random {plain}, repeating actions {repeating}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compares Go-Explore with random actions.")
    parser.add_argument("seeds", nargs="?", type=int, default=5, help="number of seeds (%(default)s)")
    parser.add_argument("most", nargs="?", type=int, default=200_000, help="most steps of a search (%(default)s)")
    main(**vars(parser.parse_args()))
