"""Programs for those who work on Outlast itself: `python -m tools.NAME`, or by make."""
