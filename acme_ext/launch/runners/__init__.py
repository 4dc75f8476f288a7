"""The ways to carry out a run: in one process, or as a program of several. The third is `launch.compiled`.

In one process:

- `local`: makes the parts, then acts and learns in turns, as often as the replay's rate limit allows. `launch.run` is
  its `run`.
- `patience`: ends the wait for a batch that is lost.
- `offline`: the same for recorded data alone, where only evaluations act.
- `upkeep`: what both do beside learning: evaluations, logs, checkpoints. `keeping` is the part that only `local` has.
- `profile`: measures where the time of a run goes.
- `snapshots`: exports of the policy while the run goes on.

As a program:

- `program`: the same parts as the nodes of a Launchpad program, as many of each as a `Topology` says.
  `launch.program.make` returns the program to a script of one's own.
- `nodes`: what runs in each: actor, inference server, learner, replay shard, evaluator, and the coordinator that they
  report to.
- `distributed`: runs a program to its end and returns its `Result`: in processes or threads (`launch.processes`), or on
  Ray (`launch.cluster`). `launch.run_program` is its `run_program`.

Each is given an `Experiment`, keeps its state in the run directory (`launch.runs`), can be resumed from there, and is
told of Ctrl-C by `launch.processes.interrupt`.
"""
