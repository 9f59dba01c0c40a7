"""Sources whose samples lie in a few large files (shards)."""
