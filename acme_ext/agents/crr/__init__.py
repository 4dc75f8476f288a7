"""Critic regularized regression (Wang et al. 2020).

The policy imitates the actions in the data that have a higher value, according to a critic, than the policy's own.
"""
