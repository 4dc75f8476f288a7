"""Proximal policy optimization (Schulman et al. 2017), for discrete and continuous actions."""
