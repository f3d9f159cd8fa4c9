"""Sampling: many episodes of one policy, a token at a time.

protocol   Sampler: what a rollout asks of any sampler
factory    the sampler that a recipe asks for
local      LocalSampler: continuous batching on this machine
weights    the copy that samples where the learner's own tensors will not do, and the proof that it is up to date
slots      what each slot of the store holds, and the longest beginning that an opening shares with one
passes     which computation makes the logits: the model's own, or the packed decoder
decoder    the packed forward pass of a Llama-like model
ragged     one packed forward pass over the key-value store of all episodes
closing    where a turn can be stopped because its action is complete
constraining    which tokens a constrained episode may say next
action_grammar  the grammar of the actions that a task's tools admit
draw       from logits to a token and its log-probability
vllm/      VllmSampler: the same protocol over vLLM's engine
"""
