"""Conservative Q-learning (Kumar et al. 2020): SAC with a penalty on critics' values outside the data."""
