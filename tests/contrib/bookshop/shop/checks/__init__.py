"""What the project's own test runner runs: `manage.py test -p "check_*.py"`."""
