"""TD3+BC (Fujimoto and Gu 2021): TD3 with a behavioural cloning term in the policy's loss."""
