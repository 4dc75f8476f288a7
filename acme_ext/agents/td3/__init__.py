"""TD3 (Fujimoto et al. 2018): deterministic policy gradients with twin critics, target policy smoothing and delayed
policy updates.
"""
