"""Agent57 (Badia et al. 2020b): NGU with values of reward and bonus apart, and a bandit that chooses the policy."""
