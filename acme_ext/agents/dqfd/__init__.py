"""Deep Q-learning from demonstrations (Hester et al. 2018): DQN that learns from demonstrations first, and then beside
its own experience, with a margin that keeps what was done there above all else.
"""
