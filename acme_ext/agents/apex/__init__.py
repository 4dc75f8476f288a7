"""Ape-X DQN (Horgan et al. 2018): DQN's learning from the prioritized replay of many actors, who explore by a ladder of
epsilons and say first how surprising their experience is.
"""
