"""SIGKILL at file operations of save, commit and retention, native and Python alike, one life after another.

Each life checks what the one before left: the acknowledged head is there and equals the copy written
beside it, what was broken is not on offer, and is gone after the next retention pass.
"""

import signal

from tests.support.lives import Lives

KINDS = {"create", "write", "fsync", "close", "delete"}


def test_killed_at_file_operations(tmp_path):
    lives = Lives(tmp_path / "lives")
    total = lives.live("")["operations"]
    assert total > 100
    log = tmp_path / "operations"
    # At the start: probe, claim, the restored head published again. Later: checkpoints and retention.
    # How many operations a life makes depends a little on what was left to tidy.
    points = [(at, True) for at in range(1, 40, 3)] + [(1 + i * (total - 1) // 33, False) for i in range(34)]
    # A sample may have none of a kind. Threads change the order from life to life: several of each.
    whole = tmp_path / "whole"
    lives.live(f"log={whole}")
    made = [line.split()[:2] for line in whole.read_text().splitlines()]
    for kind in KINDS:
        of_kind = [int(number) for number, operation in made if operation == kind]
        points += [(at, False) for at in of_kind[1::max(1, len(of_kind) // 4)]]
    killed = []
    for at, early in points:
        reply = lives.live(f"kill@{at};log={log}", early)
        if reply["signal"] == signal.SIGKILL:
            killed.append((at, early))
        else:
            assert reply["operations"] < at
    assert lives.live("")["signal"] == 0
    assert len(set(killed)) >= 30, f"{killed} of {points}, of {total} operations"
    # What it was that they didn't live to do; a line is "<number> <operation> <file>".
    lines = [line.split() for line in log.read_text().splitlines()]
    last = {line[1] for line, after in zip(lines, lines[1:] + [["1"]]) if after[0] == "1"}
    print(f"killed at {len(set(killed))} points, of about {total} operations: {sorted(last)}")
    for kind in ("base-ps0", "dense-ps0", "differential-ps0", "increment-ps0", ".json"):
        assert any(kind in line[-1] for line in lines), f"no {kind} was on its way"
    assert last >= KINDS
