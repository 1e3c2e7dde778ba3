"""The fixture of the commands of definitions."""

from tests.services.cli.definitions.rows import fake

__all__ = ["fake"]
