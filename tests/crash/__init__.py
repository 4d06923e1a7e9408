"""Processes that are killed in the middle of their work."""
