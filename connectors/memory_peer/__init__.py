"""Client of the memory of another installation, over its REST routes.

    client     one request and its answer, bounded: `PeerClient`, `PeerAnswer`

Before: services/families/memory/backends.py. After: connectors/tools/checked_network.py, httpcore.
"""

from collections.abc import Callable, Sequence

from loomlog.connectors.memory_peer.client import PeerClient


def build_peer(private_hosts: Sequence[str]) -> Callable[[str, str], PeerClient]:
    """Return what makes the client of a base_url and an api_version; it raises Permanent(invalid)."""
    return lambda base_url, api_version: PeerClient(base_url, api_version=api_version, private_hosts=private_hosts)
