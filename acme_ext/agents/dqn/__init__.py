"""DQN (Mnih et al. 2015), with double Q-learning, dueling heads, n-step returns and prioritized replay as options."""
