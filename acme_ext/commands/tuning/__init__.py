"""A search for an agent's best settings, for `acme-ext tune`; each trial is a run.

- `spaces`: the fields that a search varies, and their ranges.
- `study`: the trials, each a run with its own process and directory; several processes may work on one study.
- `results`: a table, a JSON file, and two figures.
- `tune`: the command.
"""
