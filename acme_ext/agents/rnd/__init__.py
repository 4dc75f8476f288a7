"""PPO with random network distillation (Burda et al. 2018): a bonus for new observations, with a separate value."""
