"""Bootstrapped DQN (Osband et al. 2016) with randomized priors (Osband et al. 2018).

It is DQN with several heads; a randomly chosen head acts for a whole episode.
"""
