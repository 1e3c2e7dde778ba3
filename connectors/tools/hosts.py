"""Hosts that may be reached: checked by name before a request is sent, and by address when dialled.

By name: an entry of a run's allowed hosts matches itself and its subdomains, ignoring case and a final dot; `*` matches
every public host; an empty list matches nothing.

An entry `=host` matches that host alone, no subdomains: what a hook adds for one call
(services/families/hook/runner.py).

By address: a server can point its own name at 127.0.0.1 between two look-ups, so a check of the name is not enough. The
address about to be dialled is checked (checked_network.py); it must be globally reachable unicast. The tables follow
the IANA special-purpose registries. IPv6 is an allowlist (2000::/3 without its special blocks), because everything else
is special; addresses that embed an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo) are refused as a whole,
because their destination depends on the network. ipaddress.is_global is not used: its tables differ between patch
releases of Python.

The operator's private hosts are exact names that may resolve to private addresses (loopback, RFC 1918, CGNAT, ULA).
Link-local, metadata, multicast and unspecified addresses stay blocked for them too.

Before: web_client.py, checked_network.py.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable

import httpx

ANY_PUBLIC = "*"
EXACT_PREFIX = "="

_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?\Z")
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_BLOCKED_NETWORKS = tuple(
    ipaddress.ip_network(block)
    for block in (
        "0.0.0.0/8",  # this network, unspecified
        "169.254.0.0/16",  # link-local, cloud metadata
        "168.63.129.16/32",  # Azure's platform endpoint: looks public, reachable only from inside Azure
        "192.0.0.0/24",  # protocol assignments, Oracle's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
        "2001::/23",  # protocol assignments, Teredo, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
        "fd00:ec2::254/128",  # AWS metadata
        "fd20:ce::254/128",  # Google metadata
    )
)
_PRIVATE_NETWORKS = tuple(
    ipaddress.ip_network(block)
    for block in (
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "::1/128",
        "fc00::/7",  # unique local
    )
)
_BLOCKED_PRIVATE_NETWORKS = (ipaddress.ip_network("100.100.100.200/32"),)
"""Alibaba's metadata address, which is in the carrier-grade NAT block."""


_LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})


def canonical_host(host: str) -> str:
    """Return the host in lower case, as IDNA, without a final dot or brackets; empty for an invalid host."""
    bare = host.strip().removeprefix("[").removesuffix("]").rstrip(".")
    if is_ip_address(bare):
        return str(ipaddress.ip_address(bare))
    try:
        name = httpx.URL(scheme="http", host=bare).raw_host.decode("ascii").lower()
    except httpx.InvalidURL:
        return ""
    return name if _HOST_NAME.match(name) and ".." not in name else ""


def is_host_allowed(host: str, allowed: Iterable[str]) -> bool:
    """Return whether an entry matches a canonical host. An address is matched only by itself or by `*`."""
    if not host:
        return False
    for entry in allowed:
        if entry.strip() == ANY_PUBLIC:
            return True
        if entry.startswith(EXACT_PREFIX):
            if host == canonical_host(entry[1:]):
                return True
            continue
        name = canonical_host(entry)
        if name and (host == name or (host.endswith("." + name) and not is_ip_address(host))):
            return True
    return False


def is_address_allowed(address: str, *, allow_private: bool) -> bool:
    """Return whether an address may be dialled; `allow_private` is for a host that the operator allowed."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip.scope_id is not None:
        return False
    if _is_in_any(ip, _BLOCKED_NETWORKS) or _is_in_any(ip, _BLOCKED_PRIVATE_NETWORKS):
        return False
    if _is_in_any(ip, _PRIVATE_NETWORKS):
        return allow_private
    return isinstance(ip, ipaddress.IPv4Address) or ip in _PUBLIC_V6


def is_loopback_host(host: str) -> bool:
    """Return whether the host is a name or an address of the local machine."""
    name = canonical_host(host)
    if not is_ip_address(name):
        return name in _LOOPBACK_NAMES or name.endswith(".localhost")
    address = ipaddress.ip_address(name)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    effective = mapped or address
    return effective.is_loopback or effective.is_unspecified


def is_ip_address(host: str) -> bool:
    """Return whether this is an IP address; False for one with a zone (`fe80::1%eth0`), which has
    local meaning only.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def _is_in_any(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
    blocks: Collection[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> bool:
    return any(address.version == block.version and address in block for block in blocks)
