"""Discrete BCQ (Fujimoto et al. 2019b): DQN restricted to the actions that are likely in the data."""
