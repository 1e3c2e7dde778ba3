"""JSON of answers, as types: services/api/openapi.py makes the schemas of the document from them."""
