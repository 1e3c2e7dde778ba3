import pytest

from loomlog.connectors.tools.hosts import canonical_host, is_address_allowed, is_host_allowed


@pytest.mark.parametrize(
    ("host", "allowed", "matches"),
    [
        ("example.com", ["example.com"], True),
        ("a.b.example.com", ["example.com"], True),
        ("badexample.com", ["example.com"], False),
        ("example.com.evil.org", ["example.com"], False),
        ("com", ["example.com"], False),
        ("example.com", ["EXAMPLE.com."], True),
        ("xn--bcher-kva.example", ["bücher.example"], True),
        ("example.com", [], False),
        ("example.com", [""], False),
        ("example.com", ["*"], True),
        ("10.0.0.1", ["*"], True),
        ("127.0.0.1", ["127.0.0.1"], True),
        ("127.0.0.1", ["0.0.1"], False),
        ("127.0.0.1", ["1"], False),
        ("::1", ["[::1]"], True),
        ("example.com", ["*.example.com"], False),
        ("example.com", ["example.com:8080"], False),
        ("", ["*"], False),
    ],
)
def test_a_host_and_a_list(host: str, allowed: list[str], matches: bool) -> None:
    assert is_host_allowed(host, allowed) == matches


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("Example.COM.", "example.com"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("1.2.3.4.", "1.2.3.4"),
        ("_dns.example", "_dns.example"),
        ("a b", ""),
        ("a%2fb", ""),
        ("a..b", ""),
        ("-a.example", ""),
        ("a/b", ""),
        ("a@b", ""),
        ("", ""),
    ],
)
def test_the_canonical_form_of_a_host(host: str, canonical: str) -> None:
    assert canonical_host(host) == canonical


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "100.63.255.255", "172.32.0.1", "2606:4700::1111"])
def test_a_public_address_may_be_dialled(address: str) -> None:
    assert is_address_allowed(address, allow_private=False)


PRIVATE = ["127.0.0.1", "127.255.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1"]
PRIVATE_V6 = ["::1", "fc00::1", "fdff::1"]


@pytest.mark.parametrize("address", PRIVATE + PRIVATE_V6)
def test_a_private_address_may_be_dialled_only_for_a_private_host(address: str) -> None:
    assert not is_address_allowed(address, allow_private=False)
    assert is_address_allowed(address, allow_private=True)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::ffff:10.0.0.1",
        "::ffff:8.8.8.8",
        "::7f00:1",
        "64:ff9b::a00:1",
        "64:ff9b::808:808",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2001::1",
        "2001:db8::1",
        "3fff::1",
        "100::1",
        "5f00::1",
        "fe80::1",
        "fe80::1%eth0",
        "2606:4700::1111%1",
        "fec0::1",
        "ff02::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "no address",
        "",
    ],
)
def test_a_special_address_is_never_dialled(address: str) -> None:
    assert not is_address_allowed(address, allow_private=False)
    assert not is_address_allowed(address, allow_private=True)


@pytest.mark.parametrize(
    ("host", "matches"),
    [("api.example", True), ("sub.api.example", False), ("example", False), ("xapi.example", False)],
)
def test_an_exact_entry_matches_that_host_alone(host: str, matches: bool) -> None:
    assert is_host_allowed(host, ["=api.example"]) is matches


def test_an_exact_star_is_no_host() -> None:
    assert not is_host_allowed("api.example", ["=*", "="])
