"""TD3 (Fujimoto et al. 2018): deterministic policy gradients with twin critics, smoothed targets and a delay."""
