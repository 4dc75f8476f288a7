"""Starts, watches and stops the nodes of a program: on this machine, or on the hosts of a Ray cluster (`ray`).

    launcher -> subreaper -> supervisor -> nodes -> processes of environments

- `launcher`: starts the subreaper, sends it the program, and waits until it ends.
- `subreaper`: the parent process of the supervisor. When either of the two dies, the other ends all processes.
- `supervisor`: starts, watches and stops the nodes on any hosts, as the restart policy decides.
- `restart_policy`: decides on restarts, an ordered stop and the exit code when a node ends.
- `local`: the supervisor of one machine.
- `fork_server`: imports Reverb, TensorFlow and JAX once, forks nodes from there, and tells how they ended.
- `node_process`: sets up a forked node: its devices, its share of the cores, its log, and how it is stopped.
- `process_tree`: the kernel features that tie the processes together (signals on a parent's death, adoption of
  orphans), and the signals that stop processes.
- `isolation`: gives the program its own network namespace, so that nobody else can reach its ports.
- `launchpad`: the names of Launchpad, with which programs are described, also where it is not installed: `description`
  has the nodes then, and `remote_methods` their calls.
- `threads`: runs the program as threads of this process, for debuggers and small runs.
- `interrupt`: receives Ctrl-C and SIGTERM in a thread. Runs in one process use it too.

A node without state of the run (actor, evaluator, inference server) is restarted when it dies, up to a given number of
times per hour. If another node dies, the whole program restarts from its last checkpoint, or ends. To stop, the learner
makes a last save, then the groups of nodes end, actors first and servers last. A second Ctrl-C ends everything at once.
"""
