"""Bootstrapped DQN (Osband et al. 2016) with randomized priors (Osband et al. 2018): DQN with several heads, one of
which acts for a whole episode.
"""
