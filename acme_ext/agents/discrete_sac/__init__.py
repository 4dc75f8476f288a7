"""Soft actor-critic for discrete actions (Christodoulou 2019): SAC whose expectations over actions are exact."""
