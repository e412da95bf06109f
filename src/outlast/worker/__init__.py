"""The worker: claims jobs, holds their lease, speaks with the store. It runs no user code."""
