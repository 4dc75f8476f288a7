"""Runs that are one compiled program: environments, acting, replay and learning (Hessel et al. 2021, Anakin)."""
