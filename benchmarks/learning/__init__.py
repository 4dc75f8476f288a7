"""How well the agents learn: `python -m benchmarks.learning` trains and checks them; others compare settings."""
