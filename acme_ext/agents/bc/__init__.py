"""Behavioural cloning (Pomerleau 1989): a policy that imitates the actions in recorded data."""
