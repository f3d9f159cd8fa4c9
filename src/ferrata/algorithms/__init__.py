"""Pure mathematics of the learning algorithms: tensors in, tensors out, no state and no files.

advantages       group-relative advantages, and what kind of spread a group has
returns          discounted returns, GAE, channels of reward
policy_gradient  token and sequence ratio, clipped surrogate, clip fraction, value loss
aggregation      which tokens weigh how much
divergence       per-token estimators of the KL divergence
entropy          entropy of a categorical distribution given by logits
table            the names by which a recipe selects them
"""
