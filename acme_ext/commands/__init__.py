"""The command line, `acme-ext`: what is typed and what is printed. Nothing below imports it.

- `cli`: the parser, and for each command a short function that calls what does the work.
- `doctor`: checks the machine and the environment, and says how to mend what is wrong.
- `watch`: a run's progress on the screen, from its files.
- `report`: a page about runs, one HTML file.
- `record`: what a trained agent does, recorded as data; and what recorded data holds.
- `exchange`: recorded data from and to the formats of others, Minari's and D4RL's.
- `players`, `play`, `tournament`: agents of runs in board games, against all replies, a person, and each other.
- `tuning`: `acme-ext tune`, a search over an agent's settings.

`train`, `evaluate`, `export` and `plot` call `acme_ext.launch` and `acme_ext.utils.plots` directly.

`cli` and `doctor` import nothing heavy, so that `--help` answers at once and `doctor` speaks where JAX doesn't import.
A request that can't be met is a `UsageError`: one sentence, exit code 2. A failed run is a `RunError`: exit code 1.
"""
