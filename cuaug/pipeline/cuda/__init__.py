"""Batches on a GPU."""
