"""Soft Q imitation learning (Reddy et al. 2020): SAC or DQN with rewards of 1 for demonstrations, and 0 otherwise."""
