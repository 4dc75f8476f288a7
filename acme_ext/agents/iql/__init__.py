"""Implicit Q-learning (Kostrikov et al. 2022): values of the data's own actions alone, and a policy that is weighted
towards the better of them.
"""
