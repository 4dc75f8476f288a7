"""Other libraries at the same work, each in an environment of its own (`make peers`).

`benchmarks.speed.sections.peers` starts the scripts here. A script imports its library and `clock` alone, none of
acme_ext, and prints environment steps a second.
"""
