from loomlog.services.cli.stack.services_record import (
    FILE,
    ServicesRecord,
    load_services_record,
    remove_services_record,
    save_services_record,
)

WIRING = ServicesRecord(
    supervisor_pid=7,
    api_url="http://127.0.0.1:8787",
    insights_url="",
    source="/src",
    out="/out",
    open_mode=True,
    runtimes=2,
    configuration=("/a.yaml", "/b.yaml"),
    ready_after_s=3.5,
)


def test_what_was_saved_is_loaded(tmp_path):
    save_services_record(tmp_path, WIRING)
    assert load_services_record(tmp_path) == WIRING


def test_a_missing_or_damaged_file_is_none(tmp_path):
    assert load_services_record(tmp_path) is None
    for text in ("", "{", "[]", '{"configuration": []}', '{"configuration": [], "colour": 1}'):
        (tmp_path / FILE).write_text(text)
        assert load_services_record(tmp_path) is None


def test_forgetting_twice_is_harmless(tmp_path):
    save_services_record(tmp_path, WIRING)
    remove_services_record(tmp_path)
    remove_services_record(tmp_path)
    assert load_services_record(tmp_path) is None
