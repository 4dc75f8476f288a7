"""Soft Q imitation learning (Reddy et al. 2020): SAC or DQN whose rewards are 1 for demonstrations, else 0."""
