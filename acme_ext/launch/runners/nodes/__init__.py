"""What runs in the nodes of a program. Each is made from the same parts as the run in one process.

- `coordinator`: owns the run directory: it counts, logs, gives out evaluations and says when to stop.
- `reports`: every other node's side of it: totals and numbered rows go to it, and orders come in the answer.
- `replay`: a shard of the replay; `learner`, `actor` and `evaluator`: as in one process, over the network.
- `inference`: where actors only step environments, the policy of all of them.

A node knows its neighbours by their clients alone, and waits for none of them in silence.
"""
