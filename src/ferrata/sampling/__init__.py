"""Sampling: many episodes of one policy, a token at a time.

protocol   Sampler: what a rollout asks of any sampler
local      LocalSampler: continuous batching on this machine
slots      what each slot of the store holds, and the longest beginning that an opening shares with one
passes     which computation makes the logits: the model's own, or the packed decoder
decoder    the packed forward pass of a Llama-like model
ragged     one packed forward pass over the key-value store of all episodes
closing    where a turn can be stopped because its action is complete
draw       from logits to a token and its log-probability
"""
