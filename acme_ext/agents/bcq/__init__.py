"""Discrete BCQ (Fujimoto et al. 2019): DQN restricted to the actions that are likely in the data."""
