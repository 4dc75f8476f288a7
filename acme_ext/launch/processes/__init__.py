"""A program's processes on one machine: started, watched, stopped in order, and never left behind.

    launcher -> keeper -> supervisor -> nodes -> whatever an environment starts

- `supervisor`: imports Reverb, TensorFlow and JAX once and forks all nodes from there.
- `forks`: what a forked node does first (its devices, its share of the cores, its log), and how it is asked to stop.
- `director`: what follows from the end of a node: a restart, an ordered stop, the exit code. Ray's driver has the same
  one.
- `keeper`: a process above the supervisor that does nothing else. Each ends everything when the other is gone.
- `process_tree`: what they use of the kernel's for that (death signals, the adoption of orphans), and the signals by
  which they stop each other.
- `isolation`: a network namespace of the program's own, so that nobody else reaches its ports.
- `threads`: the same program as threads of this process, for debuggers and small runs.
- `interrupt`: Ctrl-C and SIGTERM, heard by a thread at any moment. Runs in one process have it too.

A node that holds no state of the run (actor, evaluator, inference server) may be started again, so many times in an
hour; any other that dies ends the program. A stop goes group by group, actors first and servers last, and the learner
makes a last save before it ends. A second Ctrl-C ends everything at once.
"""
