"""Discrete BCQ (Fujimoto et al. 2019b): DQN among those actions alone that the data would take."""
