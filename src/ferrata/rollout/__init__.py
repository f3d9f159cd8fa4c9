"""Rollouts: a policy plays episodes in environments.

worlds      make_env: an environment by name
episode     Episode: one episode as a small state machine
collector   Collector: many episodes at once through one sampler
"""
