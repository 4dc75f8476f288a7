"""Conservative Q-learning for discrete actions (Kumar et al. 2020, section 3.2): DQN with a penalty on values outside
the data.
"""
