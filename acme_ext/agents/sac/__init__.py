"""Soft actor-critic (Haarnoja et al. 2018b): twin critics, and a temperature that is tuned to an entropy."""
