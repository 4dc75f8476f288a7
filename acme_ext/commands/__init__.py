"""The command line, `acme-ext`: what is typed and what is printed. No other part of the package imports it.

- `cli`: the table of commands, and what is done before and after each of them.
- `train`, `evaluate`, `export`, `board_games`, `data`, `runs`, `tune`, `listing`: one command or a few related ones,
  with their options, and a short function that calls what does the work. `train_on` is the part of `train` for
  programs and compiled runs; `common` is what several commands share.
- `doctor`: checks the machine and the environment, and says how to mend what is wrong.

What does the work is in `acme_ext.launch` and `acme_ext.utils.plots`, and beside the commands:

- `watch`, `report`: a run's progress on the screen, from its files; a page about runs, one HTML file.
- `record`: what a trained agent does, recorded as data; and what recorded data holds.
- `exchange`: recorded data from and to the formats of others, Minari's and D4RL's.
- `players`, `play`, `tournament`: agents of runs in board games, against all replies, a person, and each other.
- `tuning`: a search over an agent's settings.

`cli` and the commands import JAX and TensorFlow only when they run, so that `--help` answers at once, and `doctor`
works where JAX can't be imported. A request that can't be met is a `UsageError`: one sentence, exit code 2. A failed
run is a `RunError`: exit code 1.
"""
