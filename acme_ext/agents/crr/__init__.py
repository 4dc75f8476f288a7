"""Critic regularized regression (Wang et al. 2020): a policy cloned from those actions in the data that a critic finds
better than the policy's own.
"""
