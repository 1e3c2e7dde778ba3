"""The outside: the only place where drivers are imported. Each seam has one to three methods and an in-memory twin."""
