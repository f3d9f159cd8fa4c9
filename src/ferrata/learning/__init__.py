"""From scored trajectories to new weights.

batch        Example, and micro-batches of examples padded on the right
forward      log-probabilities of the trained tokens, and nothing more than those
preparation  groups of trajectories -> examples with advantages; what is left out is counted
learner      reinforcement learning: several exact optimizer steps on one collection
supervised   cross-entropy on demonstrations
optimizer    AdamW, Muon, the learning-rate schedule, the guarded step
muon         Muon in single precision, over matrices of equal shape at once
meters       sums and counts from which metrics are made
"""
