"""A trained policy in a plain Gymnasium loop: `python gymnasium_loop.py runs/x CartPole-v1`."""

import argparse

import gymnasium

from acme_ext import launch


def play(path, name, episodes=1):
    """Plays episodes with the trained agent of a run; returns their returns."""
    run = launch.load(path)
    environment = gymnasium.make(name)
    returns = []
    for episode in range(episodes):
        observation, _ = environment.reset(seed=episode)
        total, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = environment.step(run.policy(observation))
            total += float(reward)
            ended = terminated or truncated
        returns.append(total)
    environment.close()
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Plays an episode with the agent of a run, in Gymnasium's loop.")
    parser.add_argument("path", help="the run directory")
    parser.add_argument("name", help="the environment's name in Gymnasium")
    print(play(**vars(parser.parse_args())))
