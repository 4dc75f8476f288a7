"""TD3+BC (Fujimoto and Gu 2021): TD3 whose policy is also drawn to the actions in the data."""
