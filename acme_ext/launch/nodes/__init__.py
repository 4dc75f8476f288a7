"""What runs in the nodes of a program. Each is made from the same parts as the run in one process."""
