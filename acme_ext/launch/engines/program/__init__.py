"""Runs that are programs of several nodes.

- `start`: checks a run, makes its program, hands it to a host, and returns its result.
- `program`: puts an experiment's parts into the nodes of a program, see `hosts.launchpad`.
- `nodes`: the nodes: coordinator, replay shards, learner, inference servers, evaluators, actors.
- `devices`: assigns CPU threads and GPUs to nodes on one machine.
- `launchpad_flags`: Launchpad's own command-line flags, without `lp.launch`.
"""
