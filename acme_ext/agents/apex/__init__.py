"""Ape-X DQN (Horgan et al. 2018): DQN with many actors and prioritized replay.

Each environment explores with a different epsilon. The actors compute the initial priorities of their transitions.
"""
