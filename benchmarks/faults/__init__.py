"""What becomes of runs whose nodes or hosts die, and of runs that last long."""
