"""The parts that all runs share, whatever engine advances them.

- `experiment`: the `Experiment`, a frozen description from which every engine makes the same parts.
- `schedule`: when a run is evaluated and saved: `Evaluation` and `Checkpoints`.
- `start`: the checks before a run's start, which write nothing.
- `validation`: the checks of an experiment's parts; a problem is an error or a warning.
- `identity`: the contents of `config.json`, which a resumed run must match, and the run directory's default name.
- `directory`: checks and prepares the run directory, and the folder that a run records to.
- `recorded_data`: prepares recorded data for learning, instead of a run's own experience or besides it.
- `saving`: checkpoints, and the parameters of the best evaluation.
- `evaluation`: evaluates a policy on separate environments; has the `Score` of an evaluation and the `Result` of a run;
  loads a run from its directory.
- `console`: the progress line, messages and stop requests of a run in this process.
- `players`: lets a run's agent play a board game, in many games at once.
- `trained`: the `Run` that `launch.load` returns, with its policy as a function that you can call in your own code.

`acme_ext.utils.rundir` defines the layout of a run directory:

    runs/dqn-gym-CartPole-v1-s0/
      config.json      the experiment; functions and classes by names that another process can import
      logs/*.csv       a row for each episode, each evaluation and each second of learning
      checkpoints/     complete checkpoints only, with checksums (`acme_ext.learning.checkpoints`)
      curve.png        the learning curve

Nothing in this package runs an experiment: `launch.runner` and `launch.engines` do.
"""
