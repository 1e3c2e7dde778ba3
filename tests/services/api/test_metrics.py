from loomlog.services.api.metrics import Metrics


async def test_two_services_of_one_process_count_apart() -> None:
    one, two = Metrics(version="1", commit=""), Metrics(version="2", commit="")
    one.count("GET", "/x", 200)
    one.count("GET", "/x", 200)
    line = b'loomlog_http_requests_total{method="GET",route="/x",status="200"}'
    assert line + b" 2.0" in await one.render(None)
    assert line not in await two.render(None)


async def test_batches_and_starts_are_histograms() -> None:
    metrics = Metrics(version="1", commit="")
    metrics.batch_records.observe(3)
    metrics.start_seconds.observe(0.03)
    text = (await metrics.render(None)).decode()
    assert 'loomlog_command_batch_records_bucket{le="5.0"} 1.0' in text
    assert 'loomlog_run_start_seconds_bucket{le="0.05"} 1.0' in text
    assert 'loomlog_run_start_seconds_bucket{le="0.02"} 0.0' in text
