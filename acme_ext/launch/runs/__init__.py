"""What a run is, in one process, as a program or compiled.

- `experiment`: the `Experiment`, one frozen description from which all ways of running make the same parts.
- `schedule`: when it is evaluated and saved, `Evaluation` and `Checkpoints`.
- `identity`: what `config.json` holds, and a resumed run must match; the run directory's name.
- `feasibility`: the checks of an experiment before anything runs; each failure is an error or a warning.
- `settings`: the fields of a config from text and back (`learning_rate=1e-3`), with the nearest names to a wrong one.
- `demonstrations`: recorded data beside a run's own experience, made ready for the replay.
- `store`: the run directory while a run uses it. It refuses another experiment, resumes, writes logs and checkpoints,
  and keeps the best parameters.
- `evaluation`: a policy on environments of its own; the `Score` of one evaluation and the `Result` of a run; a run that
  is loaded from its directory.
- `players`: the agent of a run as a player of a board game, who moves in many games at once.
- `trained`: the `Run` that `launch.load` returns, and its policy as a function for code of one's own.

A run directory, which `acme_ext.utils.rundir` lays out:

    runs/dqn-gym-CartPole-v1-s0/
      config.json      what was run, in names that a fresh process finds again
      logs/*.csv       a row for each episode, evaluation and second of learning
      checkpoints/     only complete ones, with checksums (`acme_ext.learning.checkpoints`)
      curve.png        the learning curve

Nothing here runs an experiment: `launch.runners` and `launch.compiled` do.
"""
