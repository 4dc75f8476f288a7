"""Starts, watches and stops the processes of a program on one machine.

    launcher -> keeper -> supervisor -> nodes -> processes of environments

- `launcher`: starts the keeper, sends it the program, and waits until it ends.
- `supervisor`: imports Reverb, TensorFlow and JAX once and forks all nodes from there.
- `forks`: sets up a forked node (its devices, its share of the cores, its log), and asks the program to stop.
- `director`: decides on restarts, an ordered stop and the exit code when a node ends. Ray's driver uses it too.
- `keeper`: the parent process of the supervisor. When either of the two dies, the other ends all processes.
- `process_tree`: the kernel features for that (signals on a parent's death, adoption of orphans), and the signals that
  stop processes.
- `isolation`: gives the program its own network namespace, so that nobody else can reach its ports.
- `threads`: runs the program as threads of this process, for debuggers and small runs.
- `interrupt`: receives Ctrl-C and SIGTERM in a thread. Runs in one process use it too.

A node without state of the run (actor, evaluator, inference server) is restarted when it dies, up to a given number of
times per hour. If another node dies, the whole program restarts from its last checkpoint, or ends. To stop, the learner
makes a last save, then the groups of nodes end, actors first and servers last. A second Ctrl-C ends everything at once.
"""
