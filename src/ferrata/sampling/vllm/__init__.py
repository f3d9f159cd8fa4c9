"""Sampling with vLLM, behind the protocol that the local sampler fulfils. The only package that imports vllm.

sampler   VllmSampler: episodes, turns, log-probabilities
engine    vLLM's engine inside this process: started, kept from changing the process, closed
weights   the learner's weights into the engine, read back and compared

It needs the optional extra `vllm`; see docs/vllm.md.
"""
