"""`acme-ext tune`: a search over an agent's settings, each trial of which is a run.

- `spaces`: the fields that a search varies, and their ranges.
- `study`: the trials, each a run in a process and a directory of its own; several processes may work on one study.
- `results`: a table, a file of JSON, and two figures.
- `tune`: the command.
"""
