"""Formats beside JPEG: limits on the structure of their files, and the samples that they hold."""
