"""Behavioural cloning (Pomerleau 1989): a policy that does what was done in recorded data."""
