"""One folder a family of aggregates: rules, tables and a declaration FAMILY. registry.py finds them."""


class FamilyProblem(Exception):
    """A family that cannot be used; the text says which and why."""
