"""See agent.py."""
