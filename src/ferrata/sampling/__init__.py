"""Sampling: many episodes of one policy, a token at a time.

protocol   Sampler: what a rollout asks of any sampler
local      LocalSampler: continuous batching on this machine
ragged     one packed forward pass over the key-value store of all episodes
draw       from logits to a token and its log-probability
"""
