"""Agent57 (Badia et al. 2020b): NGU with separate values for reward and bonus, and a bandit that selects the policy."""
