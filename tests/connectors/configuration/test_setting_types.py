import pytest

from loomlog.connectors.configuration import setting_types


@pytest.mark.parametrize("text", ["127.0.0.1:8787", "[::1]:80", ":8787", "host.example:1"])
def test_an_address_has_a_host_and_a_port(text: str):
    assert setting_types.ADDRESS.parse(text) == text


@pytest.mark.parametrize("text", ["127.0.0.1", "host:port", "host:70000", "::1:80", "host:²"])
def test_an_address_without_a_usable_port_is_refused(text: str):
    with pytest.raises(ValueError, match="expected"):
        setting_types.ADDRESS.parse(text)


def test_several_servers_are_listed_with_commas():
    assert setting_types.SERVERS.parse(" a:9092, b:9092 ,") == "a:9092,b:9092"
    with pytest.raises(ValueError, match="host:port"):
        setting_types.SERVERS.parse(" , ")


@pytest.mark.parametrize(("text", "value"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("No", False)])
def test_a_flag_takes_the_usual_words(text: str, value: bool):
    assert setting_types.FLAG.parse(text) is value


def test_a_flag_refuses_other_words():
    with pytest.raises(ValueError, match="1 or 0"):
        setting_types.FLAG.parse("maybe")


def test_an_occasion_is_off_or_the_first_or_has_a_name():
    assert [setting_types.FLAG_OR_NAME.parse(text) for text in ("0", "off", "YES", "1", "restore-2")] == [
        "",
        "",
        "1",
        "1",
        "restore-2",
    ]
    for wrong in ("two words", "", "x" * 65):
        with pytest.raises(ValueError, match="expected 0, 1 or a name"):
            setting_types.FLAG_OR_NAME.parse(wrong)


@pytest.mark.parametrize("text", ["-0.1", "1.1", "nan", "x", "inf"])
def test_a_ratio_is_between_nothing_and_everything(text: str):
    with pytest.raises(ValueError, match="0 to 1"):
        setting_types.RATIO.parse(text)


def test_a_clamped_number_is_moved_into_its_bounds_and_nothing_switches_it_off():
    parse = setting_types.clamped_integer(1000, 300_000, "milliseconds").parse
    assert [parse(text) for text in ("5", "1000", "20000", "9000000", "0", "-7")] == [1000, 1000, 20000, 300_000, 0, 0]
    with pytest.raises(ValueError, match="whole number"):
        parse("1s")


@pytest.mark.parametrize("text", ["0", "65", "8.5", "x"])
def test_a_bounded_number_outside_of_its_bounds_is_refused(text: str):
    with pytest.raises(ValueError, match="from 1 to 64"):
        setting_types.integer(1, 64).parse(text)


def test_a_choice_is_taken_in_any_case_and_given_in_its_own():
    parse = setting_types.one_of("PLAINTEXT", "SSL").parse
    assert parse("ssl") == "SSL"
    with pytest.raises(ValueError, match="PLAINTEXT, SSL"):
        parse("tls")


def test_names_are_stripped_and_kept_once():
    assert setting_types.NAMES.parse(" a, b ,a,,c") == ("a", "b", "c")


@pytest.mark.parametrize("text", ["ftp://x", "x", "http://", "https:///path"])
def test_a_url_is_http_and_names_a_host(text: str):
    with pytest.raises(ValueError, match="URL"):
        setting_types.URL.parse(text)


def test_a_url_loses_its_last_slash():
    assert setting_types.URL.parse("https://a.example/x/") == "https://a.example/x"


def test_an_address_can_be_off():
    assert setting_types.ADDRESS_OR_OFF.parse("Off") == ""
    assert setting_types.ADDRESS_OR_OFF.parse("10.0.0.7:0") == "10.0.0.7:0"
    assert setting_types.ADDRESS_OR_OFF.parse("0.0.0.0:1") == "0.0.0.0:1", "others are told the host name's address"
    for text in ("no", "a:b", "::1:5"):
        with pytest.raises(ValueError, match="expected"):
            setting_types.ADDRESS_OR_OFF.parse(text)


def test_origins_are_schemes_with_hosts_and_ports_and_nothing_else():
    parse = setting_types.ORIGINS.parse
    assert parse("https://A.example:8443/, http://localhost:3000,https://a.example:8443") == (
        "https://a.example:8443",
        "http://localhost:3000",
    )
    for text in (
        "a.example",
        "http://a.example",
        "https://a.example/x",
        "https://*.a.example",
        "https://u@a.example",
        "*",
    ):
        with pytest.raises(ValueError, match="expected origins"):
            parse(text)
