"""Client of the memory of another installation, over its REST routes.

    client     one request and its answer, bounded: `PeerClient`, `PeerAnswer`

Before: services/families/memory/remote_backend.py. After: connectors/tools/checked_network.py, httpcore.
"""
