"""Rainbow (Hessel et al. 2018): DQN with six improvements, each of which can be switched off."""
