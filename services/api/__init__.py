"""The HTTP surface: requests become use cases of services.application, their answers become JSON and event streams."""
