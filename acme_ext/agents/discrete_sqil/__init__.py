"""SQIL (Reddy et al. 2020) for discrete actions: DQN whose rewards are 1 for demonstrations and 0 for all else."""
