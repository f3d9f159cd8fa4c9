"""Pure mathematics of the learning algorithms: tensors in, tensors out, no state and no files.

advantages       group-relative advantages, and what kind of spread a group has
policy_gradient  token ratio, clipped surrogate, masked mean, clip fraction
divergence       per-token estimators of the KL divergence
entropy          entropy of a categorical distribution given by logits
table            the names by which a recipe selects them
"""
