"""The ways to carry out a run: in one process, or as a program of several. The third is `launch.compiled`.

In one process:

- `local`: makes the parts, and acts and learns in turn, as the replay's rate limit has it. `launch.run` is its `run`.
- `patience`: ends the wait for a batch that is lost.
- `offline`: the same for recorded data alone, where nothing acts but the evaluations.
- `upkeep`: what both do beside learning: evaluations, logs, checkpoints; `keeping`: what of it is `local`'s own.
- `profile`: where the time of a run goes.
- `snapshots`: exports of the policy while the run goes on.

As a program:

- `program`: the same parts as the nodes of a Launchpad program, spread out as a `Topology` says. `launch.program.make`
  gives the program to a script of one's own.
- `nodes`: what runs in each: actor, inference server, learner, replay shard, evaluator, and the coordinator that they
  report to.
- `distributed`: runs a program to its end and returns its `Result`: in processes or threads (`launch.processes`), or on
  Ray (`launch.cluster`). `launch.run_program` is its `run_program`.

All of them are given an `Experiment`, keep their state in its run directory (`launch.runs`), go on from there, and
hear of Ctrl-C through `launch.processes.interrupt`.
"""
