"""Manifests and commits: what is refused, and that an uncertain outcome is never taken for a certain one."""

import copy
import dataclasses
import json
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.checkpoint_dirs import DENSE, GROUPS, MemoryStore, Run
from tfadaptcp.checkpoint import chain, claims, commit, layout, manifest_check
from tfadaptcp.checkpoint.manifest import END, Manifest, ObjectRef, republish, split_checksum, sum_rows
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.errors import (CheckpointCorruptError, CheckpointNotFoundError, CommitOutcomeUnknownError, FencedError,
                              SaveFailedError, StoreUnavailableError)

RUN = "0123456789ab"


def ref(kind, sequence, ps=0, directory=None, generation=1, run=RUN, rows=3, n=0):
    head = layout.head_name(generation, directory or sequence, run)
    return ObjectRef(f"data/{head}/{kind}-{ps}-{n}.seg", kind, sequence, ps, 100, 7,
                     {} if kind == "dense" else {"emb": rows})


def manifest(**changes):
    """A head at 9: base started at 5 and written during 6, increments 6, 8 and 9, made by two runs."""
    objects = changes.pop("objects", (
        ref("base", 5, directory=6), ref("base", 5, ps=1, directory=6), ref("increment", 6), ref("increment", 8, ps=1),
        ref("increment", 9, generation=2, run="f" * 12), ref("differential", 9, generation=2, run="f" * 12),
        ref("dense", 9, generation=2, run="f" * 12)))
    values = dict(run="f" * 12, generation=2, sequence=9, parent=str(layout.head_name(1, 8, RUN)), base_sequence=5,
                  created="2026-11-29T16:00:00.000+00:00", groups=GROUPS, dense=DENSE, objects=objects,
                  rows=sum_rows(objects), policy={"name": "adaptive", "threshold": 0.5}, step=900, epoch=2, batch=3,
                  incarnations={"0": "x", "1": "y"}, scalars={"learning_rate": 0.1}, stats={"cut_seconds": 0.01})
    return Manifest(**{**values, **changes})


def sealed(value) -> bytes:
    """Serialises a JSON value with a right checksum: what only the checks of the content can refuse."""
    body = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    text = body[:-1] + b',"sha256":"' + b"0" * 64 + END
    return body[:-1] + b',"sha256":"' + split_checksum(text)[2] + END


def test_round_trip():
    original = manifest()
    data = original.to_json()
    assert Manifest.from_json(data, "f") == original and data == original.to_json()
    assert data.count(b"\n") == 1 and data.endswith(b"\n") and json.loads(data)["format"] == 1
    assert original.name == "0000000002-0000000009-" + "f" * 12
    assert original.rows == {"base": {"emb": 6}, "increment": {"emb": 9}, "differential": {"emb": 3}}


names = st.text("abcdefXYZ_/é\x00\"\\", max_size=8)
plain = st.dictionaries(names, st.none() | st.booleans() | st.integers(-2**63, 2**63 - 1)
                        | st.floats(allow_nan=False, allow_infinity=False) | names | st.lists(names, max_size=2))


numbers = st.dictionaries(st.text(), st.integers() | st.floats(allow_nan=False, allow_infinity=False), max_size=3)


@given(policy=plain, scalars=numbers, stats=plain, step=st.integers(0, 2**63 - 1))
@settings(max_examples=60, deadline=None)
def test_round_trip_of_what_the_user_may_put_in(policy, scalars, stats, step):
    original = manifest(policy=policy, scalars=scalars, stats=stats, step=step)
    assert Manifest.from_json(original.to_json(), "f") == original


def test_every_flipped_bit_and_every_truncation_is_reported():
    data = manifest().to_json()
    for at in range(len(data)):
        for broken in (data[:at], data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1:]):
            with pytest.raises(CheckpointCorruptError, match="^dir/file.json: the manifest is damaged: "):
                Manifest.from_json(broken, "dir/file.json")
    for at in range(len(data) - 1):
        assert manifest_check.is_torn(data[:at])
    assert not manifest_check.is_torn(data)


@given(junk=st.binary(max_size=40))
def test_junk_is_reported(junk):
    for data in (junk, junk + END, b'{"format":1' + junk + b',"sha256":"' + END):
        with pytest.raises(CheckpointCorruptError):
            Manifest.from_json(data, "f")


BROKEN = {
    "format": (lambda v: v.update(format=2), "format is unknown. Received: 2. Expected: 1"),
    "missing field": (lambda v: v.pop("epoch"), "fields of manifest"),
    "extra field": (lambda v: v.update(x=1), "fields of manifest"),
    "type": (lambda v: v.update(step="1"), "manifest.step.*64-bit integer"),
    "bool": (lambda v: v.update(step=True), "manifest.step"),
    "huge": (lambda v: v.update(step=1 << 63), "manifest.step"),
    "list": (lambda v: v.update(objects={}), "objects.*a list"),
    "measured": (lambda v: v["stats"].update(measured=[1]), "stats.measured.*an object"),
    "measured size": (lambda v: v["stats"].update(measured={"bytes_per_row": {"emb": 10**40}}), "stats.measured.*1e.18"),
    "measured time": (lambda v: v["stats"].update(measured={"seconds_per_interval": -1}), "stats.measured.*from 0"),
    "measured null": (lambda v: v["stats"].update(measured={"seconds_per_interval": None}), "stats.measured.*numbers"),
    "estimator": (lambda v: v["policy"].update(estimator=1), "policy.estimator.*a plain value"),
    "string map": (lambda v: v.update(incarnations={"0": 1}), "incarnations"),
    "negative": (lambda v: v.update(epoch=-1), "epoch.*at least 0"),
    "run": (lambda v: v.update(run="../../../etc"), "run"),
    "generation": (lambda v: v.update(generation=10**10), "generation"),
    "parent": (lambda v: v.update(parent="x"), "parent"),
    "parent not older": (lambda v: v.update(parent=str(layout.head_name(2, 9, "f" * 12))), "parent.*older"),
    "origin": (lambda v: v.update(origin="/abs"), "origin"),
    "created": (lambda v: v.update(created="yesterday"), "created"),
    "consistency": (lambda v: v.update(consistency="none"), "consistency"),
    "two groups": (lambda v: v["groups"].append(v["groups"][0]), "group 'emb'.*twice"),
    "two tables": (lambda v: v["groups"][0]["tables"].append(v["groups"][0]["tables"][0]), "table 'emb'.*twice"),
    "no table": (lambda v: v["groups"][0].update(tables=[]), "tables of group emb"),
    "dim": (lambda v: v["groups"][0]["tables"][0].update(dim=0), "dim of table emb"),
    "shards": (lambda v: v["groups"][0].update(num_shards=0), "num_shards of group emb"),
    "shape": (lambda v: v["dense"][0].update(shape=[-1]), "shape of w"),
    "two dense": (lambda v: v["dense"].append(v["dense"][0]), "dense variable 'w'.*twice"),
    "absolute path": (lambda v: v["objects"][0].update(path="/etc/passwd"), "path '/etc/passwd'"),
    "path up": (lambda v: v["objects"][0].update(path="data/../x"), "object path"),
    "path up in name": (lambda v: v["objects"][0].update(
        path=os.path.dirname(v["objects"][0]["path"]) + "/.."), "object path"),
    "deep path": (lambda v: v["objects"][0].update(path=v["objects"][0]["path"] + "/x"), "object path"),
    "foreign run": (lambda v: v["objects"][6].update(
        path=f"data/{layout.head_name(2, 9, 'fff' + 'f' * 10)}/dense"), "written by"),
    "later run": (lambda v: v["objects"][6].update(path=f"data/{layout.head_name(3, 9, RUN)}/dense"), "written by"),
    "kind": (lambda v: v["objects"][0].update(kind="other"), "kind of object"),
    "ps": (lambda v: v["objects"][0].update(ps=-1), "ps of object"),
    "bytes": (lambda v: v["objects"][0].update(bytes=-1), "bytes of object"),
    "crc": (lambda v: v["objects"][0].update(crc32c=1 << 32), "crc32c of object"),
    "unknown group": (lambda v: v["objects"][0].update(rows={"other": 3}), "groups of object"),
    "negative rows": (lambda v: v["objects"][0].update(rows={"emb": -3}), "rows of object"),
    "dense rows": (lambda v: v["objects"][6].update(rows={"emb": 3}), "rows of object.*dense"),
    "repeat": (lambda v: v["objects"].insert(3, v["objects"][2]), "listed twice"),
    "out of order": (lambda v: v["objects"].insert(2, v["objects"].pop(3)), "sequence of object.*in order"),
    "a missing object": (lambda v: v["objects"].pop(2), "rows is wrong.*sums over the objects"),
    "rows": (lambda v: v["rows"]["base"].update(emb=7), "sums over the objects"),
    "kinds of rows": (lambda v: v["rows"].update(dense={"emb": 1}), "kinds of rows"),
    "base of another cut": (lambda v: v.update(base_sequence=4), "sequence of object"),
    "base after the head": (lambda v: v.update(base_sequence=10), "base_sequence"),
    "increment of the base": (lambda v: v["objects"][2].update(
        sequence=5, path=f"data/{layout.head_name(1, 5, RUN)}/o"), "above the base 5"),
    "increment after the head": (lambda v: v["objects"][4].update(
        sequence=10, path=f"data/{layout.head_name(1, 10, RUN)}/o"), "at most 9"),
    "old differential": (lambda v: v["objects"][5].update(
        sequence=8, path=f"data/{layout.head_name(1, 8, RUN)}/d"), "that of the head, 9"),
    "another directory": (lambda v: v["objects"][4].update(path=f"data/{layout.head_name(1, 8, RUN)}/o"),
                          "directory of object"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_contradicts_itself_is_refused(case):
    change, message = BROKEN[case]
    value = json.loads(manifest().to_json())
    value.pop("sha256")
    assert Manifest.from_json(sealed(value), "f") == manifest(), "the harness itself"
    change(value)
    with pytest.raises(CheckpointCorruptError, match=f"(?s)^f: the manifest is damaged: .*{message}"):
        Manifest.from_json(sealed(value), "f")


def test_to_json_refuses_what_from_json_would():
    with pytest.raises(ValueError, match="epoch"):
        manifest(epoch=-1).to_json()
    with pytest.raises(ValueError, match="manifest"):
        manifest(stats={"x": object()}).to_json()
    with pytest.raises(ValueError):
        manifest(stats={"x": float("nan")}).to_json()


def test_republished_heads_keep_the_objects_and_name_the_original():
    original = manifest()
    once = republish(original, layout.claim_name(3, RUN), 12)
    twice = republish(once, layout.claim_name(4, RUN), 15)
    for copy_ in (once, twice):
        assert Manifest.from_json(copy_.to_json(), "f") == copy_
        assert (copy_.origin, copy_.parent, copy_.objects) == (original.name, original.parent, original.objects)
        assert copy_.identity == original.identity == original.name
    assert twice.name == str(layout.head_name(4, 15, RUN))


def test_a_successor_carries_the_whole_chain():
    store = MemoryStore()
    run = Run(store, "d", base_every=99)
    parent, child = [run.checkpoint(collect=False) for _ in range(4)][2:]
    manifest_check.check_successor(parent, child)
    for index, item in enumerate(child.objects):
        kept = child.objects[:index] + child.objects[index + 1:]
        gap = dataclasses.replace(child, objects=kept, rows=sum_rows(kept))
        gap.to_json()  # by itself it is consistent
        if item.sequence < child.sequence:
            with pytest.raises(ValueError, match=f"missing or changed.*{item.path}"):
                manifest_check.check_successor(parent, gap)
    foreign = ref("increment", 2, generation=1, run=RUN)
    objects = tuple(sorted(child.objects + (foreign,), key=lambda item: item.sequence))
    with pytest.raises(ValueError, match=f"parent lacks.*{foreign.path}"):
        manifest_check.check_successor(parent, dataclasses.replace(child, objects=objects))
    with pytest.raises(ValueError, match="older than its parent's"):
        manifest_check.check_successor(parent, dataclasses.replace(child, base_sequence=0))


def test_heads_are_ordered_by_generation_run_sequence_and_never_by_step(tmp_path):
    store = Store()
    first = Run(store, str(tmp_path), keep=9)
    heads = [first.checkpoint() for _ in range(3)]
    second = Run(store, str(tmp_path), keep=9, restore=heads[0].name)
    second.checkpoint()
    heads += second.committed
    listed, damaged = commit.list_heads(store, str(tmp_path))
    assert [m.name for m in listed] == [m.name for m in heads] and not damaged
    assert [m.step for m in heads] == [10, 20, 30, 10, 50]
    assert commit.latest(store, str(tmp_path)) == heads[-1]
    assert commit.load(store, str(tmp_path), heads[1].name) == heads[1]


def test_damaged_manifests_are_passed_over_and_named(tmp_path):
    store = Store()
    run = Run(store, str(tmp_path), keep=9)
    heads = [run.checkpoint() for _ in range(3)]
    folder = tmp_path / "manifests"
    newest = folder / f"{heads[2].name}.json"
    data = newest.read_bytes()
    newest.write_bytes(data[:-20])
    (folder / f"{layout.head_name(1, 9, run.claim.run)}.json").write_bytes((folder / f"{heads[0].name}.json").read_bytes())
    (folder / "notes.txt").write_bytes(b"")
    listed, damaged = commit.list_heads(store, str(tmp_path))
    assert listed == heads[:2] and commit.latest(store, str(tmp_path)) == heads[1]
    reasons = {item.file: (item.torn, item.reason) for item in damaged}
    assert reasons.pop("notes.txt")[0] is False
    torn, reason = reasons.pop(newest.name)
    assert torn and str(newest) in reason and "cut off" in reason
    (torn, reason), = reasons.values()
    assert not torn and "its name is wrong" in reason
    with pytest.raises(CheckpointCorruptError, match="cut off"):
        commit.load(store, str(tmp_path), heads[2].name)
    with pytest.raises(CheckpointCorruptError, match="its name is wrong"):
        commit.load(store, str(tmp_path), str(layout.head_name(1, 9, run.claim.run)))
    newest.write_bytes(data.replace(b'"step":30', b'"step":31'))
    assert [item.torn for item in commit.list_heads(store, str(tmp_path))[1] if item.file == newest.name] == [False]


def test_nothing_there(tmp_path):
    assert commit.list_heads(Store(), str(tmp_path / "no")) == ([], [])
    assert commit.latest(Store(), str(tmp_path / "no")) is None and commit.next_sequence(Store(), str(tmp_path)) == 1
    for name in ("x", "0000000001-0000000001-0123456789ab", "../../etc/passwd", None):
        with pytest.raises(CheckpointNotFoundError, match="Received: .*Expected: one of"):
            commit.load(Store(), str(tmp_path), name)


def test_sequences_of_failed_attempts_are_not_used_again():
    store = MemoryStore()
    Run(store, "d").checkpoint()
    store.objects[f"d/data/{layout.head_name(1, 7, RUN)}/o"] = b""
    assert commit.next_sequence(store, "d") == 8
    store.objects[f"d/manifests/{layout.head_name(1, 9, RUN)}.json"] = b"torn"
    assert commit.next_sequence(store, "d") == 10


def test_a_fenced_coordinator_commits_nothing():
    store = MemoryStore()
    old = Run(store, "d")
    old.checkpoint()
    Run(store, "d")
    before = set(store.objects)
    with pytest.raises(FencedError):
        old.checkpoint()
    assert {path for path in set(store.objects) - before if "/manifests/" in path} == set()


def test_commit_refuses_another_runs_manifest_and_another_parent():
    store = MemoryStore()
    run = Run(store, "d")
    run.checkpoint()
    with pytest.raises(ValueError, match="claim"):
        commit.commit(store, "d", manifest(), run.claim)
    child = dataclasses.replace(run.head, sequence=5, parent=str(layout.head_name(1, 3, RUN)))
    with pytest.raises(ValueError, match="parent"):
        commit.commit(store, "d", child, run.claim, run.head)


class Uncertain(MemoryStore):
    """A store whose manifest writes raise, after having done `part` of the work; reads may then fail too."""

    def __init__(self, part, broken_reads=0, broken_deletes=False):
        super().__init__()
        self.part, self.broken_reads, self.broken_deletes, self.armed = part, broken_reads, broken_deletes, False

    def put(self, path, data):
        if not self.armed or "/manifests/" not in path:
            return super().put(path, data)
        if self.part is not None:
            self.objects[path] = data[:int(len(data) * self.part)]
        raise StoreUnavailableError("connection reset")

    def read(self, path):
        if self.armed and "/manifests/" in path and self.broken_reads:
            self.broken_reads -= 1
            raise StoreUnavailableError("still down")
        return super().read(path)

    def delete(self, path, durable=True):
        if self.broken_deletes:
            raise StoreUnavailableError("still down")
        super().delete(path, durable)


@pytest.mark.parametrize("directory, store, error", [
    ("d", Uncertain(None), SaveFailedError),
    ("gs://b/d", Uncertain(1.0), None),
    ("d", Uncertain(1.0), CommitOutcomeUnknownError),  # its sync may be what failed
    ("d", Uncertain(0.5), SaveFailedError),
    ("d", Uncertain(0.5, broken_deletes=True), CommitOutcomeUnknownError),
    ("d", Uncertain(None, broken_reads=1), CommitOutcomeUnknownError),
    ("d", Uncertain(1.0, broken_reads=1), CommitOutcomeUnknownError)])
def test_an_uncertain_write_is_read_back(directory, store, error):
    run = Run(store, directory)
    first = run.checkpoint()
    store.armed = True
    if error is None:
        second = run.checkpoint()
        assert commit.latest(store, directory) == second
    else:
        with pytest.raises(error, match="connection reset") as raised:
            run.checkpoint()
        assert type(raised.value) is error
        store.broken_reads = 0
        there = store.part == 1.0
        assert (commit.latest(store, directory) != first) == there
        assert bool(run.held) == (error is CommitOutcomeUnknownError), "its data is held exactly if it may exist"
    assert claims.list_claims(store, directory) == [run.claim]


def test_a_manifest_that_exists_is_left_alone():
    store = MemoryStore()
    run = Run(store, "d")
    first = run.checkpoint()
    with pytest.raises(SaveFailedError, match="exists already"):
        commit.commit(store, "d", dataclasses.replace(first, step=11), run.claim)
    assert commit.latest(store, "d") == first
    commit.commit(store, "d", copy.deepcopy(first), run.claim)  # the very same is a commit that was made


@pytest.mark.parametrize("seed", range(5))
def test_what_is_summed_over_the_objects_once(seed):
    """Oracle: sums over all of them, and over the list that the next head is made from."""
    rng = random.Random(seed)
    objects = tuple(dataclasses.replace(ref(kind, sequence, ps=ps, generation=2, run="f" * 12), bytes=rng.randrange(10**6))
                    for kind, first in (("base", 5), ("increment", 6), ("differential", 9), ("dense", 9))
                    for sequence in ([5] if kind == "base" else range(first, 10)) for ps in range(rng.randrange(1, 4)))
    scanned = 7, tuple(dataclasses.replace(ref("base", 7, ps=ps), bytes=rng.randrange(10**6)) for ps in range(3))
    head = manifest(objects=objects)

    def bytes_of(*kinds):
        return sum(item.bytes for item in objects if item.kind in kinds)

    stats = chain.policy_stats(head)
    assert head.bytes == stats.bytes_restore == sum(item.bytes for item in objects)
    assert (stats.bytes_in_base, stats.bytes_differential, stats.bytes_dense) == (
        bytes_of("base"), bytes_of("differential"), bytes_of("dense"))
    assert stats.objects_in_base == sum(item.kind == "base" for item in objects)
    assert stats.objects_in_chain == sum(item.kind in ("base", "increment") for item in objects)
    dense = [item for item in objects if item.kind == "dense"]
    for parent, is_base, scan in ((None, True, None), (head, True, None), (head, False, None), (head, False, scanned)):
        plain = chain.next_objects(parent, is_base, [] if parent is None else dense, scan)
        assert chain.kept_bytes(parent, is_base, scan) == sum(item.bytes for item in plain)
    assert head == manifest(objects=objects) and head.to_json() == manifest(objects=objects).to_json(), "sums are no field"
    assert dataclasses.replace(head, objects=dense).bytes == bytes_of("dense")


def test_the_objects_of_a_head_are_walked_once():
    class Counted(tuple):
        walks = 0

        def __iter__(self):
            Counted.walks += 1
            return super().__iter__()

    head = manifest(objects=Counted(manifest().objects))
    Counted.walks = 0
    chain.policy_stats(head)
    chain.kept_bytes(head, False)
    chain.kept_bytes(head, False, (6, ()))
    chain.policy_stats(head)
    assert Counted.walks == 1
