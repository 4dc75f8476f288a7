"""Soft actor-critic (Haarnoja et al. 2018b): twin critics, and a temperature tuned for a target entropy."""
