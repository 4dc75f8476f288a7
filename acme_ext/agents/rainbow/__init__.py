"""Rainbow (Hessel et al. 2018): DQN with six improvements; each one is optional."""
