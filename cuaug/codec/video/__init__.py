"""Videos: chosen frames, decoded on the CPU or by a GPU's video engine."""
