"""The report: what it says of results that were made up."""

import json
from pathlib import Path

import pytest

from benchmarks import simulate
from benchmarks.side_by_side import longer, report, results, systems, tables, targets, totals
from benchmarks.side_by_side.cells import Cell

ROOT = Path(__file__).resolve().parents[3]
BYTES = "bytes written and λ/43 times read, simulated, of AdaptCP, times those of the best other policy"
FACTS = {"machine": "a machine, 2 cores, load 0.1", "commit": "abc", "code": "123", "versions": {"tensorflow": "2"}}


NEW_BASES = {
    "adaptcp": {"every": 12, "seconds": 3.0, "how": "beside", "cpu_seconds": 4.0, "bytes": 60e6, "factor": 1.0,
                "share": 0.5},
    "check_n_run": {"every": 10, "seconds": 9.0, "how": "a snapshot", "cpu_seconds": 5.0, "bytes": 65e6,
                    "factor": 0.97}}


def trained(system, speed, number=0, **conditions):
    return Cell(system, round=number, **conditions), {
        "facts": FACTS, "steps_per_second": speed, "between_bases": 1.02 * speed,
        "others_share": 0.0, "windows": [{"steps": 100, "seconds": 4.0}],
        "step_milliseconds": {"p50": 50.0, "p99": 99.0, "max": 200.0}, "waited_seconds": 1.0,
        "bytes_written": 50_000_000, "bytes_per_checkpoint": 25e6,
        "cpu_seconds_per_step": {"ps": 0.02, "worker": 0.01, "chief": 0.003}, "store_cpu_seconds_per_step": 0.001,
        "peak_bytes": {"ps": 3e9, "worker": 1e9, "chief": 5e8}, "saves": {"saves": 4, "skipped": 2},
        "extrapolated": {"line_faster": 4.0, "seconds_added_to_each_save": 9.0} if system == "tfra_files" else None,
        "new_bases": NEW_BASES.get(system)}


def restored(system, seconds, number=0, regime="published", computed=None):
    return Cell(system, kind="restore", checkpoints=100, restore_ps=2, round=number, regime=regime), {
        "facts": FACTS, "made_by": "123", "seconds": seconds, "bytes_read": 2e9, "connections": 2,
        "extrapolated": computed, "line_seconds": 0.0 if regime == "local" else 8.0,
        "cpu_seconds": {"ps": 3.0, "worker": 0.5, "chief": 1.0},
        "peak_bytes": {"ps": 2e9}, "others_share": 0.0}


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
                              ("tracking", 0.96), ("tfra_files", 0.1)):
            kept.put(*trained(system, speed * share, number))
        kept.put(*restored("adaptcp", 10.0, number))
        kept.put(*restored("check_n_run", 100.0 + number, number, computed={"line_faster": 2.0}))
        kept.put(*restored("adaptcp", 3.0, number, "local"))
        kept.put(*restored("check_n_run", 2.9, number, "local"))
        kept.put(*restored("check_n_run_quantized", 1.0, number, "local"))
    kept.put_totals(simulated("Zipf 1.2", (0.1, 1, 1, 1, 1)))  # replaced
    kept.put_totals(simulated("Zipf 1.2", (0.1, 120, 90, 300, 100), (1.0, 201, 200, 200, 400)))
    kept.put_totals(simulated("Zipf 1.4", (0.1, 90, 90, 100, 100)))
    return kept


def test_tables(store, tmp_path):
    text = report.write(store, str(tmp_path / "results"))
    assert "the second time 1.010 (1.010 to 1.010) of the first" in text
    assert ("| AdaptCP | 0.945 (0.945 to 0.945) | 0.945 | 5.5% (5.5% to 5.5%) | 50 / 99 / 200 | 20.0 + 10.0 + 3.0 "
            "(1.0) | 25.0 (30.0) | 25.0% | 3000 / 1000 / 500 | 2, 2 skipped | of 12 checkpoints one is a base, beside, "
            "3.0 s and 4.0 s of CPU more; *computed* from 50% of a base |") in text
    assert ("| 25.0 (29.0) | 25.0% | 3000 / 1000 / 500 | 2, 2 skipped | of 10 checkpoints one is a base, a snapshot, "
            "9.0 s and 5.0 s of CPU more; others as if 0.97 times as large as measured |") in text
    assert "| 50 / - / - |" in text and "| computed: written at 4.0 times the caps, 9 s added to each |" in text
    named = systems.SYSTEMS["check_n_run"].title
    assert (f"| {named} | 101.0 (100.0 to 102.0) | 98.5 to 103.5 | 2000 | 2 | 8.0 | 10.10 | 3.0 + 0.5 + 1.0 | 2000 | "
            "computed: read at 2.0 times the caps |") in text
    assert f"| {named} | 2.9 (2.9 to 2.9) | 2.9 to 2.9 | 2000 | - | - | 0.97 |" in text
    assert text.count("; 3 rounds of 5: not finished, and preliminary") == 3 and "several versions" not in text
    assert "Versions of the code: 123." in text
    assert "| Zipf 1.2 | 1.200 (0.900), incr_ckpt_10 | 1.005 (1.000), full |" in text
    assert "| Zipf 1.4 | 0.900 (0.900), full |  |" in text
    summary = json.loads((tmp_path / "results" / "report" / report.SUMMARY).read_text())
    assert summary["machines"] == ["a machine, 2 cores"] and len(summary["throughput"]) == 6
    assert [found["trace"] for found in summary["totals"]] == ["Zipf 1.2", "Zipf 1.4"]


def test_targets(store):
    found = {target.what: (target.measured, target.verdict) for target in targets.check(store.all(), store.totals())}
    named = systems.SYSTEMS["check_n_run"].title
    assert found["AdaptCP loses every 100 batches"] == ("5.5%; 3 rounds, 95 %: 5.5% to 5.5%", "met")
    assert found["AdaptCP loses every 1000 batches"] == (targets.NOT_MEASURED, "")
    assert found["tracking on, no checkpoints, of plain TFRA's throughput"] == (
        "95.5%; 3 rounds, 95 %: 95.5% to 95.5%", "**missed**")
    assert found[f"throughput of AdaptCP every 100 batches, times that of {named}"] == (
        "4.75; 3 rounds, 95 %: 4.75 to 4.75", "met")
    # One size of tables is no growth, and some of the systems are no highest of all.
    assert found[f"that, by the rows of the tables ({named})"] == ("5M: 4.75, 3 rounds", "")
    measured, verdict = found["the highest throughput of the other systems, at every interval"]
    assert measured.startswith(f"100: 0.199 ({named}) against 0.945; 300: ") and verdict == ""
    assert measured.count("*computed*") == 4
    assert found[f"restore of {named} into 2 ps, times AdaptCP's"] == (
        "10.10; 3 rounds, 95 %: 9.85 to 10.35, *computed*", "met")
    assert found[f"restore of {named} into 1 ps, times AdaptCP's"] == (targets.NOT_MEASURED, "")
    assert found["restore of AdaptCP from local disks into 2 ps, times the fastest's at full precision"] == (
        f"1.03 ({named}); 3 rounds, 95 %: 1.03 to 1.03", "met")
    assert found[BYTES] == ("1.200 at worst (Zipf 1.2, λ = 0.1, incr_ckpt_10); above 1.01 in 1 of 3", "")


def checked(kept, what):
    return next((target.measured, target.verdict) for target in targets.check(kept.all(), [])
                if target.what.startswith(what))


def test_fewer_than_three_rounds_decide_nothing(tmp_path):
    kept = results.Results(str(tmp_path))
    for number in range(3):
        assert checked(kept, "AdaptCP loses every 100")[1] == ""
        kept.put(*trained("none", 40.0, number))
        kept.put(*trained("adaptcp", 39.0, number))
    assert checked(kept, "AdaptCP loses every 100") == ("2.5%; 3 rounds, 95 %: 2.5% to 2.5%", "met")


@pytest.mark.parametrize("speeds, verdict", [((37.0, 38.0, 39.0), "met, within the noise"), ((37.9, 38.0, 38.1), "met"),
                                             ((35.0, 36.0, 39.0), "**missed**, within the noise")])
def test_a_verdict_that_the_rounds_do_not_agree_on_says_so(tmp_path, speeds, verdict):
    kept = results.Results(str(tmp_path))
    for number, speed in enumerate(speeds):
        kept.put(*trained("none", 40.0, number))
        kept.put(*trained("adaptcp", speed, number))
    assert checked(kept, "AdaptCP loses every 100")[1] == verdict


@pytest.mark.parametrize("times, verdict", [((5.0, 6.0, 7.0), "met"), ((5.0, 7.0, 6.0), "**missed**"),
                                            ((5.0, 6.0), "")])
def test_the_ratio_grows_with_the_tables(tmp_path, times, verdict):
    kept = results.Results(str(tmp_path))
    for number in range(3):
        for rows, ratio in zip((1_000_000, 5_000_000, 20_000_000), times):
            kept.put(*trained("check_n_run", 4.0, number, rows=rows))
            kept.put(*trained("adaptcp", 4.0 * ratio, number, rows=rows))
    assert checked(kept, "that, by the rows")[1] == verdict


@pytest.mark.parametrize("best, missing, verdict", [(0.9, "", "met"), (0.96, "", "**missed**"),
                                                    (0.9, "tf_checkpoint", "")])
def test_the_highest_at_every_interval(tmp_path, best, missing, verdict):
    kept = results.Results(str(tmp_path))
    for number in range(3):
        kept.put(*trained("none", 40.0, number))
        for name in systems.TRAINED:
            if systems.SYSTEMS[name].saves and name != missing and not systems.SYSTEMS[name].is_ablation:
                kept.put(*trained(name, 40.0 * {"adaptcp": 0.95, "native_incremental": best}.get(name, 0.01), number))
    assert checked(kept, "the highest throughput")[1] == verdict


def test_longer_intervals_are_measured_or_computed(store):
    for number in range(3):
        store.put(*trained("none", 40.0, number, interval=1000))
        store.put(*trained("adaptcp", 39.6, number, interval=1000))
    line, = [line for line in tables.longer_table(store.all()) if line.startswith("| AdaptCP |")]
    own = 0.95 / 1.005
    from_1000 = [longer.relative("adaptcp", 1000, 0.99, interval) for interval in (300, 3000, 10_000)]
    assert line == (f"| AdaptCP | {own:.3f} | *{from_1000[0]:.3f}* | 0.990 "
                    f"({longer.relative('adaptcp', 100, own, 1000):.3f}) | *{from_1000[1]:.3f}* "
                    f"| *{from_1000[2]:.3f}* |")


def test_several_versions_of_the_code_are_said(store):
    cell, result = trained("adaptcp", 38.0, 3)
    store.put(cell, {**result, "facts": {**FACTS, "code": "456"}})
    assert "**with several versions of the code: 123, 456**" in tables.training_table(Cell("any"), store.all())[0]


def test_what_failed_for_good_is_said(store):
    store.put_failure(Cell("adaptcp"), "Traceback:\nmade up since")
    store.put_failure(Cell("tf_checkpoint", ps=1), "Traceback:\nOutOfMemory: no room\n")
    lines = tables.failures(store.all(), store.aside())
    assert len([line for line in lines if line.startswith("- ")]) == 1
    assert lines[2].startswith("- tf.train.Checkpoint, every 100 batches, 5,000,000 rows, 1 ps") and lines[2].endswith(
        "round 0: `OutOfMemory: no room`")


def complete(ratio):
    """Everything that `totals` finds by default, one trace and lambda of it with this ratio."""
    traces = {}
    for number, (trace, weight) in enumerate(sorted(totals.expected())):
        traces.setdefault(trace, []).append((weight, 90 if number else 100 * ratio, 90, 100, 300))
    return [simulated(trace, *found) for trace, found in traces.items()]


def test_all_traces_are_those_of_the_command(monkeypatch):
    monkeypatch.setattr("sys.argv", ["simulate", "totals", "--rows", "1e5"])
    given = simulate._arguments()
    titles = {title for title, _ in simulate._traces(given)}
    assert {(title, weight) for title in (*titles, *totals.LOGS) for weight in given.weights} == totals.expected()


@pytest.mark.parametrize("traces, verdict", [([], ""), ([simulated("a", (1.0, 101, 99, 100, 300))], ""),
                                             (complete(1.01), "met"), (complete(1.011), "**missed**")])
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


def test_the_published_report_is_that_of_the_published_cells():
    measured = results.Results(str(ROOT / "benchmarks" / "measured"))
    text = report.markdown(measured.all(), measured.aside(), measured.totals())
    document = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert f"{report.BEGIN}\n{text}\n![" in document
    assert json.loads((ROOT / "docs" / report.SUMMARY).read_text(encoding="utf-8")) == json.loads(
        json.dumps(report.summary(measured.all(), measured.totals())))


def test_nothing_measured(tmp_path):
    kept = results.Results(str(tmp_path))
    assert report.write(kept, str(tmp_path)) == "Nothing was measured yet."
    kept.put_totals(simulated("Zipf 1.4", (0.1, 90, 90, 100, 100)))
    assert "0.900 at worst (Zipf 1.4" in report.write(kept, str(tmp_path))
