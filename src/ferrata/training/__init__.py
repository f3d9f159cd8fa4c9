"""Training a policy: the stages of a run and the loop of each.

pipeline     stages in order, each behind its gate: the entry point of `ferrata train`
session      what all stages of a run share: policy, collector, store, streams, view
supervised   SFT on scripted demonstrations; demonstrations writes them as tokens and measures them
rl           the reinforcement-learning loop: collect, prepare, update, publish
saving       checkpoints of a stage, and going on from one
base_model   makes the small base model that ships with the package; base_corpus is what it reads (its skills in
             base_skills_reading and base_skills_deciding, made of base_draws), base_batches the same as tokens
"""
