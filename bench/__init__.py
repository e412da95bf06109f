"""Measurements. Nothing here is a test: a number depends on the machine and its other work."""
