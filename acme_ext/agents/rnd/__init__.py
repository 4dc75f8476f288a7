"""PPO with random network distillation (Burda et al. 2018): a bonus for what is new, and a value of its own for it."""
