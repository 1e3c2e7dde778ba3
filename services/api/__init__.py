"""The HTTP surface: requests become use cases of services.commands, their answers become JSON and event streams."""
