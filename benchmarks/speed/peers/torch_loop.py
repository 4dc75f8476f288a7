"""DQN in one file, as CleanRL writes it: one environment, PyTorch, a ring of arrays: `torch_loop.py --seconds S`.

The work of acme_ext's DQN: an update with 128 transitions for every 4 steps, double Q-learning, MLP 64x64, a target
that takes 1% of the network each update.
"""

import argparse
import copy

import gymnasium
import numpy as np
import torch
from clock import Clock
from torch import nn

WARM_UP, SIZE, BATCH, LEARNING_STARTS, EVERY = 2_500, 100_000, 128, 1_000, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    clock = Clock(WARM_UP, parser.parse_args().seconds)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    env = gymnasium.make("CartPole-v1")
    network = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    target = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    observations, next_observations = np.zeros((2, SIZE, 4), np.float32)
    actions, rewards, discounts = np.zeros(SIZE, np.int64), np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    observation, _ = env.reset(seed=0)
    steps = 0
    while not clock.ended(steps):
        epsilon = max(0.05, 1 - 0.95 * steps / 10_000)
        if rng.random() < epsilon:
            action = int(rng.integers(2))
        else:
            with torch.no_grad():
                action = int(network(torch.from_numpy(observation)).argmax())
        after, reward, terminated, truncated, _ = env.step(action)
        place = steps % SIZE
        observations[place], next_observations[place] = observation, after
        actions[place], rewards[place], discounts[place] = action, reward, 0.0 if terminated else 0.99
        observation = env.reset()[0] if terminated or truncated else after
        steps += 1
        if steps < LEARNING_STARTS or steps % EVERY:
            continue
        chosen = rng.integers(min(steps, SIZE), size=BATCH)
        o, a, r, d, o_t = (
            torch.from_numpy(x[chosen]) for x in (observations, actions, rewards, discounts, next_observations)
        )
        with torch.no_grad():
            best = network(o_t).argmax(1, keepdim=True)
            aim = r + d * target(o_t).gather(1, best)[:, 0]
        loss = nn.functional.huber_loss(network(o).gather(1, a[:, None])[:, 0], aim)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 10.0)
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), network.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
    print(clock.rate)


if __name__ == "__main__":
    main()
