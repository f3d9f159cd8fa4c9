"""Seconds for one whole update, collection included: Ferrata against TRL's GRPOTrainer.

    python benchmarks/update.py --trl-python .venv-trl/bin/python [--rounds 3] [--policy smollm2-135m] [--threads 2]
                                [--tasks 8] [--group 8]

Everything is as in `collection.py`: same weights in fp32, same tasks, group sizes and token counts, the same script.
Every second member of a group is said to have failed, so that there is something to learn from; then each contender
takes one AdamW step on all episodes, without a divergence or an entropy bonus:

    Ferrata   `Collector.collect`, `prepare`, `Learner.update`
    TRL       `GRPOTrainer.train` with `max_steps=1`, groups of 8 in each accumulated forward and backward pass
"""

from __future__ import annotations

import collection

if __name__ == "__main__":
    collection.main(__doc__, learn=True, asked=3.0)
