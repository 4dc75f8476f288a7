"""A program's processes on one machine: how they are started, watched and stopped.

    launcher -> keeper -> supervisor -> nodes -> whatever an environment starts

- `launcher`: starts the keeper, hands over what is to be run, and waits for its end.
- `supervisor`: imports Reverb, TensorFlow and JAX once and forks all nodes from there.
- `forks`: what a forked node does first (its devices, its share of the cores, its log), and how it is asked to stop.
- `director`: decides what follows when a node ends: a restart, an ordered stop, the exit code. Ray's driver uses it
  too.
- `keeper`: the parent process of the supervisor. When either of the two dies, the other ends all processes.
- `process_tree`: what the kernel offers for that (signals on a parent's death, the adoption of orphans), and the
  signals by which processes are stopped.
- `isolation`: a network namespace of the program's own, so that nobody else can reach its ports.
- `threads`: the same program as threads of this process, for debuggers and small runs.
- `interrupt`: Ctrl-C and SIGTERM, which a thread receives at any moment. Runs in one process use it too.

A node that holds no state of the run (actor, evaluator, inference server) may be started again, up to a given number
of times in an hour; any other that dies ends the program. A stop goes group by group, actors first and servers last,
and the learner makes a last save before it ends. A second Ctrl-C ends everything at once.
"""
