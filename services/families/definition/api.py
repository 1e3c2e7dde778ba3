"""All operations of the family, and its tools. Pure; it takes long to import, because each kind has its block.

Before: services/families/registry.py. After: handlers.py.
"""

from loomlog.services.families.definition import evaluation_api, kind_api, query_api, volume_api

OPERATIONS = (*kind_api.OPERATIONS, *query_api.OPERATIONS, *evaluation_api.OPERATIONS, *volume_api.OPERATIONS)
TOOLS = (*kind_api.TOOLS, evaluation_api.TOOL, volume_api.TOOL)
