"""The arithmetic of scale, beside numbers worked out by hand; and that all of it can be measured."""

import os
import subprocess
import sys
from pathlib import Path

import tfadaptcp  # noqa: F401 (as a whole, and not as benchmarks without TensorFlow have it)
import pytest

from benchmarks.scale import inputs, paper, report
from benchmarks.scale.setting import Setting

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20
# 1,000 rows on each of 10 servers; 100 MiB of a server's base in files.
SETTING = Setting(keys=10_000, ps=10, cores=4, memory_bytes=1e9, nic_bits=8 * 50 * MIB, connection_bits=1e12,
                  store_bits=8 * 250 * MIB, request_ms=20, interval_seconds=100, at_once=1, segment_bytes=10 * MIB)
MEASURED = {
    "table_bytes_per_row": 600.0, "tracker_bytes_per_row": 40.0, "longest_write_ms": 5.0, "longest_write_rows": 500.0,
    "longest_write_ms_per_row": 0.01, "gate_ms": 0.5, "growth_ns_per_row": 4000.0, "resolve_ns_per_row": 1000.0,
    "segment_bytes_per_row": MIB / 10,
    "save_ns_per_row": 2e5, "restore_ns_per_row": 8e6, "save_writes_per_object": 2.0, "remove_reads_per_object": 1.0,
    "remove_writes_per_object": 1.0, "manifest_bytes": 200.0,
    "manifest_commit_us": 100.0, "manifest_read_us": 50.0, "manifest_collect_us": 10.0, "manifest_memory": 3000.0,
    "cut_ms": 1.0, "cut_ms_per_ps": 0.5,
    "save_ms": 2.0, "save_ms_per_ps": 1.0, "resolve_ms": 0.0, "resolve_ms_per_ps": 0.25}


def values(figures):
    return {name: figure.value for name, figure in figures.items()}


def test_a_server():
    found = values(paper.on_a_server(SETTING, MEASURED))
    assert found["rows"] == 1000 and found["tables"] == 600_000 and found["tracker"] == 40_000
    assert found["growth"] == 100_000  # half of one of three
    assert found["memory"] == 740_000 + 2 * 2**30
    assert found["stall"] == pytest.approx(0.010)  # 5 ms at 500 rows, 5 more for 500 more
    assert found["doubling"] == pytest.approx(0.004)
    assert found["resolve"] == pytest.approx(0.001)


def test_files_are_as_large_as_the_rule_of_the_ops_says():
    assert paper.segment_bytes(100 * MIB, SETTING) == 10 * MIB  # an eighth is more than the most
    assert paper.segment_bytes(40 * MIB, SETTING) == 5 * MIB
    assert paper.segment_bytes(1 * MIB, SETTING) == 2 * MIB  # the least
    assert paper.objects_of(100 * MIB, SETTING) == 10 and paper.objects_of(101 * MIB, SETTING) == 11
    assert paper.objects_of(1, SETTING) == 1 and paper.objects_of(0, SETTING) == 0
    assert paper.objects_of_head(SETTING, MEASURED, 0.1, 3) == 10 * (10 + 3 * 5)  # 10 MiB are 5 files of 2


def test_a_base():
    found = values(paper.of_a_base(SETTING, MEASURED))
    assert found["bytes"] == 1000 * MIB and found["bytes_ps"] == 100 * MIB and found["objects"] == 100
    assert found["cpu"] == pytest.approx(0.05) and found["busy"] == pytest.approx(0.05 / 0.07)
    assert found["wire"] == pytest.approx(2) and found["store"] == pytest.approx(4)
    assert found["seconds"] == found["store"] and found["restore"] == found["store"]
    assert found["restore_cpu"] == pytest.approx(2)
    assert found["touched"] == pytest.approx(250)
    assert found["writes"] == pytest.approx(50) and found["creates"] == pytest.approx(25)
    slow = values(paper.of_a_base(SETTING, {**MEASURED, "save_ns_per_row": 1e8}))
    assert slow["cpu"] == pytest.approx(25) and slow["busy"] == pytest.approx(150 + 25 - 10.5), "10.5 of them in the first 150"
    few = values(paper.of_a_base(SETTING.__class__(**{**vars(SETTING), "connection_bits": 8 * MIB}), MEASURED))
    assert few["wire"] == pytest.approx(100 / 8) and few["restore"] == pytest.approx(100 / 16)
    three = values(paper.of_a_base(SETTING.__class__(**{**vars(SETTING), "replication": 3}), MEASURED))
    assert three["seconds"] == pytest.approx(12) and three["restore"] == pytest.approx(4), "one copy is read"
    tenth = values(paper.of_a_base(SETTING, MEASURED, 0.1))
    assert tenth["bytes"] == pytest.approx(100 * MIB) and tenth["objects"] == 50


def test_the_coordinator():
    found = values(paper.of_the_coordinator(SETTING, MEASURED, 1000))
    assert found["manifest"] == 200_000 and found["memory"] == 3_000_000
    assert found["commit"] == pytest.approx(0.1)
    assert found["retention"] == pytest.approx(0.01) and found["read"] == pytest.approx(0.05)
    assert found["remove"] == pytest.approx(40) and found["list"] == pytest.approx(0.02)  # one request after the other
    at_once = SETTING.__class__(**{**vars(SETTING), "at_once": 10})
    assert values(paper.of_the_coordinator(at_once, MEASURED, 1000))["remove"] == pytest.approx(4)
    many = SETTING.__class__(**{**vars(SETTING), "at_once": 1000})
    assert values(paper.of_the_coordinator(many, MEASURED, 1000))["remove"] == pytest.approx(2), "no more than a bucket takes"
    assert found["cut"] == pytest.approx(0.006) and found["replies"] == pytest.approx(0.012)
    assert found["told"] == pytest.approx(0.0025)


def test_what_breaks_first_comes_first():
    found = paper.breaks(SETTING, MEASURED, head=250)
    assert [item.at for item in found] == sorted(item.at for item in found)
    by_name = {item.what: item for item in found}
    # 100 files: 4 s of 100.
    assert by_name["removing a base that was replaced"].at == pytest.approx(10_000 * 25)
    assert by_name["listing the objects of a restored head"].at == pytest.approx(10_000 * 12_000)  # 250 files: 5 ms of 60 s
    by_servers = {item.what: item.at for item in paper.breaks_by_servers(SETTING, MEASURED)}
    assert by_servers["a cut"] == pytest.approx(1998)  # 1 ms, and half a one for each
    assert by_servers["what a ps gets of the store's line, HDFS"] == pytest.approx(250 / 3 / 16)


def test_lines_and_numbers():
    assert inputs.line([(1, 3), (2, 5), (4, 9)]) == pytest.approx((1, 2))
    assert inputs.line([(3, 7)]) == (7, 0)
    assert inputs.median([3, 1, 2]) == 2 and inputs.median([4, 1, 3, 2]) == 2
    assert report.number(7.8e12, "B") == "7.8 TB" and report.number(116300) == "116,300"
    assert report.number(0.0886, "s") == "88.6 ms" and report.number(3489, "s") == "3,489 s"
    assert report.number(21600, "s") == "6.0 h" and report.number(1e10) == "1e+10"


def test_inputs_are_kept_beside_those_that_are_there(tmp_path):
    path = tmp_path / "deep" / "inputs.json"
    one, two = inputs.Input(1.0, "B", "one", "a"), inputs.Input(2.0, "s", "two", "b")
    inputs.write({"one": one}, path)
    inputs.write({"two": two}, path)
    assert inputs.read(path) == {"one": one, "two": two} and inputs.values(inputs.read(path)) == {"one": 1.0, "two": 2.0}


def test_everything_is_measured_and_reported(tmp_path):
    document = tmp_path / "scale.md"
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    kept = tmp_path / "inputs.json"
    # Requests need a server that not every machine has.
    inputs.write({name: inputs.Input(MEASURED[name], "requests", name, "by hand") for name in MEASURED
                  if name.endswith("_per_object")}, kept)
    done = subprocess.run([sys.executable, "-m", "benchmarks.scale", "--quick", "--ps-processes", "1", "2", "--inputs",
                           str(kept), "--docs", str(document)], cwd=ROOT, text=True, capture_output=True, timeout=240,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(inputs.read(kept)) == {*MEASURED, "cut_ms_measured", "save_ms_measured", "resolve_ms_measured"}
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "\nold\n" not in text
    assert "what breaks first" in text and "AdaptCP" in text and "request-rate" in text
