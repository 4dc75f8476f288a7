"""Soft actor-critic for discrete actions (Christodoulou 2019): SAC with exact expectations over actions."""
