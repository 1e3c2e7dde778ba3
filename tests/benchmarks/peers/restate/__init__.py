"""See service.py."""
