"""What advances a run.

- `engine`: what an engine is.
- `in_process`: acting and learning in turn, in this process. `sample_meter` says when to learn, and `profile`
  measures where the time goes.
- `recorded`: learning from recorded data, without acting.
- `learner_engine`: what these two share: metrics and evaluations of one learner.
- `compiled`: environments, acting, replay and learning as one compiled program.
- `program`: several nodes, which are not advanced from here: a coordinator holds the run's session.
"""
