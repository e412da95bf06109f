"""The lifecycle of a job, pure: no I/O, no clock, no randomness of its own."""
