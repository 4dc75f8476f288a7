"""A program on a Ray cluster, or on a Ray of its own on this machine.

    launcher -> keeper -> driver --Ray--> agent, one for each node ==socket==> nursery, one for each host -> nodes

Ray finds the places, carries the control and tells who is lost. Data goes from node to node by Courier and Reverb, as
in any program. Whatever becomes of the driver, an agent or Ray itself, a node ends when its agent is gone.

- `connection`: to a cluster that runs, or to a Ray that is started for this program alone.
- `placement`: what each node asks of the cluster, and what is said when it can't be given.
- `driver`: in the supervisor's place; by `processes.director` it takes every end of a node as the supervisor does.
- `fleet`: the agents, as the driver sees them: sent to their places, asked for news, given orders.
- `agent`: Ray's actor that stands for a node, and reserves its ports. It imports nothing heavy.
- `nursery`: the process of a host that forks the nodes there, as the supervisor does on one machine.
"""
