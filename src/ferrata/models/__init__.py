"""Models: loading and saving policies, and conversations as token ids.

policy      Policy, load_policy, save_policy
adapters    small trained matrices beside frozen ones (LoRA)
checksum    checksums of weights
chat        Chat: fixed segments around texts, appended and never rendered again
tokenizer   the tokenizer of the small policies
base/       the small policy that ships with the package
"""
