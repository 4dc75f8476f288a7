"""The command line, `acme-ext`: its commands, their options and their output. No other package imports this one.

- `cli`: the list of commands, and the code that runs before and after each command.
- `train`, `evaluate`, `export`, `board_games`, `data`, `runs`, `tune`, `listing`: one or a few related commands each,
  with their options and a short function that calls the implementation. `train_on` has the options of `train` for
  programs and compiled runs. `common` has functions that several commands use.
- `doctor`: checks the machine and the installation, and tells how to fix problems.

The implementations are in `acme_ext.launch`, in `acme_ext.utils.plots` and in these modules:

- `watch`, `report`: show a run's progress in the terminal, from its files; write an HTML page about runs.
- `record`: records the experience of a trained agent, and describes recorded data.
- `exchange`: converts recorded data from and to the formats of Minari and D4RL.
- `players`, `play`, `tournament`: run agents in board games: against all possible replies, a person or each other.
- `tuning`: searches for an agent's best settings.

`cli` and the commands import JAX and TensorFlow only when they run. So `--help` is fast, and `doctor` works even if JAX
can't be imported. An invalid request raises a `UsageError`: one sentence, exit code 2. A failed run raises a
`RunError`: exit code 1.
"""
