"""The HTTP API: maps requests to the use cases of services.application, and results to JSON and event streams."""
