"""Evaluation on unseen tasks: running it, its results, and their uncertainty.

    statistics   intervals and paired tests, one pure function per formula
    results      what an evaluation says, as a record that is stored and read back (no torch)
    evaluate     collect the episodes and summarise them

Import from the modules themselves: whoever only reads results then loads no torch.
"""
