"""A program on a Ray cluster, or on a Ray of its own on this machine.

    launcher -> subreaper -> driver --Ray--> proxy of each node ==socket==> fork server of each host -> nodes

Ray finds the places, carries the control and tells who is lost. Data goes from node to node by Courier and Reverb, as
in any program. Whatever becomes of the driver, a proxy or Ray itself, a node ends when its proxy is gone.

- `connection`: to a cluster that runs, or to a Ray that is started for this program alone.
- `placement`: what each node asks of the cluster, and what is said when it can't be given.
- `driver`: the supervisor of a program on Ray.
- `fleet`: the proxies, as the driver sees them: sent to their places, asked for events, given commands.
- `proxy`: Ray's actor that stands for a node, and reserves its ports. It imports nothing heavy.
- `host_server`: the fork server of a host.
- `usage`: measures the resource usage of nodes, for Ray's metrics.
- `commands`: runs commands on the hosts of a cluster, for searches of settings.
"""
