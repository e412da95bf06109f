"""The store: the one truth about jobs and leases. ``open_store`` picks it by URL."""
