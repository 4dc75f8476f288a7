"""Conservative Q-learning (Kumar et al. 2020): SAC whose critics are also pushed down where the data has no actions."""
