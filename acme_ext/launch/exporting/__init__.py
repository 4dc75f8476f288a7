"""A run's policy in files that need nothing of this package: for NumPy alone, and for JAX."""
