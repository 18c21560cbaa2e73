"""The baselines as they run: what each checkpoint holds, key by key, that training stands still, and restarts."""

import threading

import pytest

import tfadaptcp
from tests.model.written import rows_of
from tests.support import baselines, faults, oracle, rows
from tests.support.saving import heads_of
from tfadaptcp import cli, policies
from tfadaptcp.checkpoint.faults import set_fault_hook
from tfadaptcp.checkpoint.manifest import ROW_KINDS
from tfadaptcp.checkpoint.store import Store

pytestmark = pytest.mark.usefixtures("no_hook_stays")
POLICIES = {
    "intermittent": policies.CheckNRun(), "one_shot": policies.CheckNRun("one_shot"),
    "consecutive": policies.CheckNRun("consecutive"), "native_incremental": "native_incremental",
    "incr_ckpt_3": "incr_ckpt_3", "differential": "differential", "full": "full"}
RESTART = 7
JOB = baselines.job()


def build(shards, seed=5):
    return oracle.build("momentum", devices=["/CPU:0"] * shards, dim=baselines.DIM, seed=seed)


@pytest.fixture(scope="module")
def reader():
    """Names its tables first: those of a model that comes later are others."""
    model = build(2, seed=9)
    model.optimizer._create_all_weights(model.trainable_variables)
    return model


def run(model, directory, policy, intervals, copies):
    manager = tfadaptcp.CheckpointManager(model, directory, policy, max_to_keep=100)
    for interval in intervals:
        rows.write(model, interval.written, value=interval.value)
        rows.remove(model, interval.removed)
        copy = oracle.take(model)
        copies[manager.save().name] = copy
        manager.wait()
    stats = manager.stats()
    assert stats["rows_by_update"] == stats["failed"] == stats["skipped"] == 0
    manager.close()


def written_by(directory):
    """What the checkpoints of a directory wrote, in their order, as `baselines.simulate` says it."""
    found = []
    for head in heads_of(directory):
        if head.origin is not None:
            continue
        of_head = {kind: {key: None if row.row is None else row.row[0]
                          for key, row in rows_of(Store(), str(directory), head, kind, head.sequence).items()}
                   for kind in ROW_KINDS}
        found.append({kind: rows for kind, rows in of_head.items() if rows})
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_written_is_what_the_system_would_write(name, tmp_path, reader):
    expected = baselines.simulate(baselines.RULES[name], JOB)
    copies = {}
    run(build(2), tmp_path, POLICIES[name], JOB, copies)
    for n, (found, wanted) in enumerate(zip(written_by(tmp_path), expected, strict=True)):
        assert found == wanted, f"checkpoint {n}"
    for checkpoint, copy in copies.items():
        reader.load_adaptcp(tmp_path, checkpoint)
        oracle.check(copy, reader, checkpoint, shards=False)


def test_the_simulation_sees_what_it_is_there_for():
    kinds = ["".join(sorted({kind[0] for kind in written if written[kind]})) for written in
             baselines.simulate(baselines.RULES["intermittent"], JOB)]
    assert 2 <= kinds[1:].count("b") and kinds.count("di") >= 2, kinds
    assert RESTART - 1 > kinds.index("b", 1), "the restart is to need what was before it, and to come after a renewal"
    assert kinds[RESTART - 1] != "b" and kinds[RESTART] != "b"


@pytest.mark.parametrize("name", ["intermittent", "one_shot", "incr_ckpt_3"])
def test_a_restarted_run_goes_on_as_the_interrupted_one_would_have(name, tmp_path, reader):
    copies = {}
    first = build(2)
    run(first, tmp_path, POLICIES[name], JOB[:RESTART], copies)
    rows.write(first, range(50, 90), value=99)  # lost
    second = build(3, seed=6)
    second.load_adaptcp(tmp_path)
    run(second, tmp_path, POLICIES[name], JOB[RESTART:], copies)
    assert written_by(tmp_path) == baselines.simulate(baselines.RULES[name], JOB)
    newest = list(copies)[-1]
    reader.load_adaptcp(tmp_path)
    oracle.check(copies[newest], reader, newest, shards=False)


class Held:
    """Stops whoever creates a manifest, or calls the engine's save, until told to go on."""

    def __init__(self):
        self._go, self._reached = threading.Event(), threading.Event()

    def __call__(self, op="create", path="/manifests/"):
        if op == "create" and "/manifests/" in path:
            self._reached.set()
            assert self._go.wait(60)

    def before(self, function):
        def held(*args):
            self()
            return function(*args)
        return held

    def reached(self):
        assert self._reached.wait(60)

    def go(self):
        self._go.set()


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def start(tmp_path, policy, **options):
    model = build(2)
    rows.write(model, range(100), value=1)
    return model, tfadaptcp.CheckpointManager(model, tmp_path, policy, **options)


def restores(tmp_path, reader, copy, checkpoint=None):
    reader.load_adaptcp(tmp_path, checkpoint)
    oracle.check(copy, reader, shards=False)


def test_native_incremental_stands_still_until_all_is_stored(tmp_path, reader):
    model, manager = start(tmp_path, "native_incremental")
    held = Held()
    set_fault_hook(held)
    copy = oracle.take(model)
    training = in_thread(manager.save)
    held.reached()
    training.join(0.3)
    assert training.is_alive() and manager.is_saving
    held.go()
    training.join(60)
    assert not training.is_alive() and manager.stats()["committed"] == len(manager.checkpoints) == 1
    restores(tmp_path, reader, copy)


def test_check_n_run_stands_still_until_all_is_copied(tmp_path, reader, monkeypatch):
    model, manager = start(tmp_path, "check_n_run")
    cuts, cut = [], manager.engine.cut
    monkeypatch.setattr(manager.engine, "cut", lambda request, *args: cuts.append(request) or cut(request, *args))
    copying, storing = Held(), Held()
    monkeypatch.setattr(manager.engine, "save", copying.before(manager.engine.save))
    set_fault_hook(storing)
    copies = [oracle.take(model)]
    training = in_thread(manager.save)
    copying.reached()
    training.join(0.3)
    assert training.is_alive(), "training went on before the rows were copied"
    copying.go()
    training.join(60)
    storing.reached()
    assert manager.is_saving, "training stood still until all was stored"
    rows.write(model, range(40), value=2)  # after the copy: nobody has to save these first
    copies.append(oracle.take(model))
    training = in_thread(manager.save)
    training.join(0.3)
    assert training.is_alive() and len(cuts) == 1, "a checkpoint began before the one before was stored"
    storing.go()
    training.join(60)
    manager.wait()
    stats = manager.stats()
    assert stats["rows_by_update"] == stats["skipped"] == 0 and "blocked_seconds" in stats
    assert [request["writer_threads"] for request in cuts] == [1, 1]
    for copy, info in zip(copies, manager.checkpoints, strict=True):
        restores(tmp_path, reader, copy, info.name)


def test_a_snapshot_that_does_not_fit_into_memory(tmp_path, reader):
    model, manager = start(tmp_path, "check_n_run",
                           engine=tfadaptcp.EngineOptions(capture="snapshot", capture_memory_bytes=1, block_bytes=256))
    copy = oracle.take(model)
    manager.save()
    rows.write(model, range(100), value=2)
    manager.wait()
    assert manager.stats()["rows_by_update"] == 0
    restores(tmp_path, reader, copy)


def test_a_snapshot_that_fails_lets_training_go_on_and_loses_nothing(tmp_path, reader):
    model, manager = start(tmp_path, "check_n_run")
    with faults.plan("errno=28@1+;match=base-"):
        manager.save()
        with pytest.raises(tfadaptcp.SaveFailedError):
            manager.wait()
    rows.write(model, range(20), value=2)
    copy = oracle.take(model)
    manager.save()
    manager.wait()
    restores(tmp_path, reader, copy)


def test_the_callback_takes_what_the_policy_brings_and_waits_instead_of_skipping(tmp_path, capsys):
    counts, seen = {}, []
    model = oracle.build("sgd")
    for name, keywords in (("check_n_run", {}), ("incr_ckpt_2", {}),
                           ("skipping", {"policy": "check_n_run", "on_pending": "skip"}),
                           ("mine", {"policy": "check_n_run", "engine": tfadaptcp.EngineOptions()})):
        held = Held()
        # The first manifest is held until the callback has been due a second time.
        set_fault_hook(held if name == "skipping" else None)
        callback = tfadaptcp.AdaptCPCallback(tmp_path / name, 2, **{"policy": name, **keywords})
        callback.set_model(model)
        callback.set_params({})
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        for batch in range(7):
            rows.write(model, range(batch, 40), value=batch)
            callback.on_train_batch_end(batch)
            if batch == 3:
                held.go()
                callback.manager.wait()
        callback.on_train_end()
        counts[name] = [callback.manager.stats()[field] for field in ("committed", "skipped")]
        seen.append(callback.manager._options.capture)
    assert seen == ["snapshot", "blocking", "snapshot", "save_on_update"]
    assert counts == {"check_n_run": [4, 0], "incr_ckpt_2": [4, 0], "skipping": [3, 1], "mine": [4, 0]}
    for name in ("check_n_run", "incr_ckpt_2"):
        assert cli.main(["ls", str(tmp_path / name)]) == cli.WHOLE
        assert f" {name} " in capsys.readouterr().out
