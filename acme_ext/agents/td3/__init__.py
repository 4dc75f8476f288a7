"""TD3 (Fujimoto et al. 2018): deterministic policy gradients, twin critics, target smoothing, delayed updates."""
