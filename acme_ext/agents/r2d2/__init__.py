"""R2D2 (Kapturowski et al. 2019): recurrent Q-learning with prioritized replay of sequences and stored state."""
