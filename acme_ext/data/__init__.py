"""Recorded experience in folders: whole episodes, written by any run and read by any agent that learns off-policy."""
