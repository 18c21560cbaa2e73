"""The report: what it says of results that were made up."""

import json

import pytest

from benchmarks.side_by_side import report, results, targets
from benchmarks.side_by_side.cells import Cell

BYTES = "bytes written and λ times read, simulated, of AdaptCP, times those of the best other policy"
FACTS = {"machine": "a machine, 2 cores, load 0.1", "commit": "abc", "versions": {"tensorflow": "2"}}


def trained(system, speed, number=0, **conditions):
    return Cell(system, round=number, **conditions), {
        "facts": FACTS, "steps_per_second": speed, "between_bases": 1.02 * speed,
        "others_share": 0.0, "windows": [{"steps": 100, "seconds": 4.0}],
        "step_milliseconds": {"p50": 50.0, "p99": 99.0, "max": 200.0}, "waited_seconds": 1.0,
        "bytes_written": 50_000_000,
        "cpu_seconds_per_step": {"ps": 0.02, "worker": 0.01, "chief": 0.003}, "store_cpu_seconds_per_step": 0.001,
        "peak_bytes": {"ps": 3e9, "worker": 1e9, "chief": 5e8}, "saves": {"saves": 4, "skipped": 2},
        "extrapolated": None,
        "new_bases": {"every": 12, "seconds": 3.0, "how": "beside"} if system == "adaptcp" else None}


def restored(system, seconds, number=0):
    return Cell(system, kind="restore", checkpoints=100, restore_ps=2, round=number), {
        "facts": FACTS, "seconds": seconds, "bytes_read": 2e9, "connections": 2, "extrapolated": None,
        "others_share": 0.0}


def simulated(trace, *found):
    """Of AdaptCP, of it without a bound, and of another policy, for each of some lambdas."""
    names = ("adaptcp", "adaptcp_unbounded", "full", "incr_ckpt_10")
    return {"trace": trace, "weights": [
        {"weight": weight, "policies": {name: {"total": float(total)} for name, total in zip(names, totals)}}
        for weight, *totals in found]}


@pytest.fixture
def store(tmp_path):
    kept = results.Results(str(tmp_path / "results"))
    for number, speed in enumerate((40.0, 50.0, 20.0)):
        for system, share in (("none", 1.0), ("none_again", 1.01), ("adaptcp", 0.95), ("check_n_run", 0.2),
                              ("tracking", 0.96)):
            kept.put(*trained(system, speed * share, number))
        kept.put(*restored("adaptcp", 10.0, number))
        kept.put(*restored("check_n_run", 100.0 + number, number))
    kept.put_totals(simulated("Zipf 1.2", (0.1, 1, 1, 1, 1)))  # replaced
    kept.put_totals(simulated("Zipf 1.2", (0.1, 120, 90, 300, 100), (1.0, 201, 200, 200, 400)))
    kept.put_totals(simulated("Zipf 1.4", (0.1, 90, 90, 100, 100)))
    return kept


def test_tables(store, tmp_path):
    text = report.write(store, str(tmp_path / "results"))
    assert "the second time 1.010 (1.010 to 1.010) of the first" in text
    assert ("| AdaptCP | 0.950 (0.950 to 0.950) | 0.950 | 5.0% (5.0% to 5.0%) | 50 / 99 / 200 | 20.0 + 10.0 + 3.0 "
            "(1.0) | 25.0 | 25.0% | 3000 / 1000 / 500 | 2, 2 skipped | of 12 checkpoints one is a base, beside, 3.0 s "
            "longer |") in text
    assert "| Check-N-Run | 101.0 | 2000 | 2 | 10.10 | |" in text
    assert text.count("; 3 rounds of 5: not finished, and preliminary") == 2
    assert "| Zipf 1.2 | 1.200 (0.900), incr_ckpt_10 | 1.005 (1.000), full |" in text
    assert "| Zipf 1.4 | 0.900 (0.900), full |  |" in text
    summary = json.loads((tmp_path / "results" / "report" / report.SUMMARY).read_text())
    assert summary["machines"] == ["a machine, 2 cores"] and len(summary["throughput"]) == 5
    assert [found["trace"] for found in summary["totals"]] == ["Zipf 1.2", "Zipf 1.4"]


def test_targets(store):
    found = {target.what: (target.measured, target.verdict) for target in targets.check(store.all(), store.totals())}
    assert found["AdaptCP loses every 100 batches"] == ("5.0%", "met")
    assert found["AdaptCP loses every 1000 batches"] == (targets.NOT_MEASURED, "")
    assert found["tracking on, no checkpoints, of plain TFRA's throughput"] == ("96.0%", "**missed**")
    assert found["throughput of AdaptCP every 100 batches, times Check-N-Run's"] == ("4.75", "met")
    assert found["the highest throughput of all at every interval"] == ("100: adaptcp", "met")
    assert found["restore of Check-N-Run, times AdaptCP's"] == ("10.10", "met")
    assert found[BYTES] == ("1.200 at worst (Zipf 1.2, λ = 0.1, incr_ckpt_10); above 1.01 in 1 of 3", "**missed**")


@pytest.mark.parametrize("traces, verdict", [([], ""), ([simulated("a", (1.0, 101, 99, 100, 300))], "met"),
                                             ([simulated("a", (1.0, 101.1, 99, 100, 300))], "**missed**")])
def test_the_target_of_bytes(traces, verdict):
    found, = [target for target in targets.check([], traces) if target.what == BYTES]
    assert found.verdict == verdict and (found.measured == targets.NOT_MEASURED) == (not traces)


def test_what_was_measured_with_a_laxer_rule_is_said(tmp_path):
    kept = results.Results(str(tmp_path), most_of_others=1.0)
    kept.put(*trained("none", 40.0))
    assert "**1 of the measurements were made with a laxer rule" in report.write(kept, str(tmp_path))


def test_the_generated_section_is_replaced_and_nothing_else():
    document = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    assert report.replaced(document, "new") == f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n"
    with pytest.raises(ValueError, match="without a generated section"):
        report.replaced("nothing", "new")


def test_what_goes_beside_a_document(store, tmp_path):
    document = tmp_path / "benchmarks.md"
    document.write_text(f"{report.BEGIN}\n{report.END}\nafter\n")
    text = report.write(store, str(tmp_path / "results"), str(document))
    assert text in document.read_text() and document.read_text().endswith("\nafter\n")
    assert json.loads((tmp_path / report.SUMMARY).read_text())["commits"] == ["abc"]
    assert (report.PLOTS in text) == (tmp_path / report.PLOTS).exists()  # there is matplotlib, or there is not


def test_nothing_measured(tmp_path):
    kept = results.Results(str(tmp_path))
    assert report.write(kept, str(tmp_path)) == "Nothing was measured yet."
    kept.put_totals(simulated("Zipf 1.4", (0.1, 90, 90, 100, 100)))
    assert "0.900 at worst (Zipf 1.4" in report.write(kept, str(tmp_path))
