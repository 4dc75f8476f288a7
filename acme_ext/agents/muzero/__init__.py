"""MuZero (Schrittwieser et al. 2020): tree search with a learned model.

The default is Gumbel MuZero (Danihelka et al. 2022).
"""
