"""MuZero (Schrittwieser et al. 2020): planning by a tree search in a learned model; Gumbel MuZero (Danihelka et al.
2022) by default.
"""
