from loomlog.connectors.configuration.expansion import expand


def test_our_names_and_the_listed_third_party_names_are_expanded():
    environ = {"LOOMLOG_MODEL": "m", "LOOMCYCLE_X": "y", "GITHUB_TOKEN": "gh"}
    text = expand("a ${LOOMLOG_MODEL} ${LOOMCYCLE_X} ${GITHUB_TOKEN}", environ)
    assert text.text == "a m y gh"
    assert text.names == ("LOOMLOG_MODEL", "LOOMCYCLE_X", "GITHUB_TOKEN")
    assert text.errors == text.warnings == ()


def test_a_secret_of_the_installation_is_refused_whether_it_is_set_or_not():
    for name in ("LOOMLOG_AUTH_TOKEN", "LOOMCYCLE_PG_DSN", "LOOMLOG_POSTGRES", "LOOMCYCLE_SECRET_KEY"):
        text = expand(f"x${{{name}}}", {name: "hunter22"})
        assert "hunter22" not in text.text
        assert len(text.errors) == 1
        assert name in text.errors[0]


def test_other_names_stay_as_they_are_written_and_a_warning_says_so():
    text = expand("cd ${HOME}", {"HOME": "/home/ann"})
    assert text.text == "cd ${HOME}"
    assert "left as it is written" in text.warnings[0]


def test_templates_that_are_filled_later_are_not_touched():
    assert expand("${run.user} $cred:x $LOOMLOG_X ${lower}", {}).text == "${run.user} $cred:x $LOOMLOG_X ${lower}"


def test_a_name_that_is_not_set_becomes_empty_with_a_warning():
    text = expand("<${LOOMLOG_NOTHING}>", {})
    assert text.text == "<>"
    assert "not set" in text.warnings[0]


def test_a_value_is_not_expanded_again():
    assert expand("${LOOMLOG_A}", {"LOOMLOG_A": "${LOOMLOG_B}", "LOOMLOG_B": "b"}).text == "${LOOMLOG_B}"


def test_a_value_that_grows_beyond_all_bounds_is_refused():
    text = expand("${LOOMLOG_A}${LOOMLOG_A}", {"LOOMLOG_A": "x" * 40_000})
    assert "80000 characters" in text.errors[0]
