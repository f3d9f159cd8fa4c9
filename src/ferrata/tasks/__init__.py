"""Task sets: splits and the proof that they do not overlap."""
