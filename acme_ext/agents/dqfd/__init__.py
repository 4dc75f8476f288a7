"""Deep Q-learning from demonstrations (Hester et al. 2018): DQN with demonstrations in its replay.

It first learns only from demonstrations, and then also from its own experience. A margin loss raises the values of
demonstrated actions above those of other actions.
"""
