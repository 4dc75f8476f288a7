"""Implicit Q-learning (Kostrikov et al. 2022).

The critics are only evaluated at the data's actions. The policy imitates these actions, weighted by their advantages.
"""
