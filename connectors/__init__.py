"""Connectors to external systems; drivers are imported only here. Each protocol has one to three methods and an
in-memory twin.
"""
