"""Soft Q imitation learning (Reddy et al. 2020): SAC whose rewards are 1 for demonstrations and 0 for all else."""
