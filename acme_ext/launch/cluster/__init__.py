"""A program on a Ray cluster, or on a Ray of its own on this machine.

    launcher -> keeper -> driver --Ray--> agent, one for each node ==socket==> nursery, one for each host -> nodes

Ray finds the places, carries the control and tells who is lost. Data goes from node to node by Courier and Reverb, as
in any program. Whatever becomes of the driver, an agent or Ray itself, a node ends when its agent is gone.
"""
