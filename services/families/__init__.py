"""One folder a family of aggregates: rules, tables and a declaration FAMILY. registry.py finds them."""
