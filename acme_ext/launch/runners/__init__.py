"""Runs an experiment in one process, or as a program of several processes. `launch.compiled` is the third way.

In one process:

- `local`: makes the parts, then acts and learns in turn; the replay's rate limit sets the ratio. `launch.run` is its
  `run`.
- `patience`: stops waiting for a batch that Reverb has lost.
- `offline`: runs on recorded data, where only evaluations act.
- `upkeep`: evaluations, logs and checkpoints for `local` and `offline`. `keeping` adds the parts that only `local`
  needs.
- `profile`: measures how a run spends its time.
- `snapshots`: exports the policy during a run.

As a program:

- `program`: makes the same parts as the nodes of a Launchpad program; a `Topology` sets how many of each.
  `launch.program.make` returns the program, for use in your own script.
- `nodes`: the classes of the nodes: actor, inference server, learner, replay shard, evaluator, and the coordinator that
  they report to.
- `distributed`: runs a program to its end and returns its `Result`: in processes or threads (`launch.processes`), or on
  Ray (`launch.cluster`). `launch.run_program` is its `run_program`.

Each runner takes an `Experiment`, keeps its state in the run directory (`launch.runs`), can resume from it, and
handles Ctrl-C with `launch.processes.interrupt`.
"""
