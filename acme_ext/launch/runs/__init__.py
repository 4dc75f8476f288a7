"""The parts that all runs share, whether in one process, as a program or compiled.

- `experiment`: the `Experiment`, a frozen description from which every runner makes the same parts.
- `schedule`: when a run is evaluated and saved: `Evaluation` and `Checkpoints`.
- `identity`: the contents of `config.json`, which a resumed run must match, and the run directory's default name.
- `feasibility`: checks an experiment before anything runs; a problem is an error or a warning.
- `settings`: converts fields of a config from text (`learning_rate=1e-3`) and from JSON; suggests names for typos.
- `demonstrations`: prepares recorded data for learning from it together with a run's own experience.
- `store`: the run directory during a run. It refuses another experiment, resumes, writes logs and checkpoints, and
  keeps the best parameters.
- `evaluation`: evaluates a policy on separate environments; has the `Score` of an evaluation and the `Result` of a run;
  loads a run from its directory.
- `players`: lets a run's agent play a board game, in many games at once.
- `trained`: the `Run` that `launch.load` returns, with its policy as a function that you can call in your own code.

`acme_ext.utils.rundir` defines the layout of a run directory:

    runs/dqn-gym-CartPole-v1-s0/
      config.json      the experiment; functions and classes by names that another process can import
      logs/*.csv       a row for each episode, each evaluation and each second of learning
      checkpoints/     complete checkpoints only, with checksums (`acme_ext.learning.checkpoints`)
      curve.png        the learning curve

Nothing in this package runs an experiment: `launch.runners` and `launch.compiled` do.
"""
