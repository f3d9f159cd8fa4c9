"""Rollouts: a policy plays episodes in environments.

worlds          make_env: an environment by name; EnvironmentSpec: how to make one, for other processes
episode         Episode: one episode as a small state machine
hosts           EnvironmentHost: who runs the environments; LocalHost: in this process
workers         WorkerHost: in worker processes
  playing         what it knows about an episode; who brought a worker down
  worker_handle   one worker process as its parent sees it
  worker_process  what runs in it
  messages        what travels between them
judging         a model's verdicts on finished episodes
collector       Collector: many episodes at once through one sampler
"""
