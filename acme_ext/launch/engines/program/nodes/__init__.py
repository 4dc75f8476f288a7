"""The nodes of a program. They use the same parts as a run in one process.

- `coordinator`: owns the run directory. It counts steps, writes logs, schedules evaluations and stops the program.
- `reports`: the other nodes' connection to the coordinator. They send it counts and log rows, and get orders back.
- `replay`: a shard of the replay. `learner`, `actor` and `evaluator`: the same as in one process, over the network.
- `inference`: a server that applies the policy for actors that only step environments.
- `stops`: how nodes learn that they must stop.

A node accesses other nodes only through their clients. While it waits for one, it reports what it waits for.
"""
