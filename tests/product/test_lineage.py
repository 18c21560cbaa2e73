"""Which heads follow one another, and so age out: complete ones too; and what a manager may go on from."""

import dataclasses
import errno
import os
import shutil
import threading
import time

import pytest
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

import tfadaptcp
from tests.support import faults, oracle, rows
from tests.support.fitting import data
from tests.support.saving import heads_of
from tfadaptcp import claiming
from tfadaptcp.checkpoint import chain, claims, layout
from tfadaptcp.checkpoint.faults import set_fault_hook
from tfadaptcp.checkpoint.store import Store
from tfadaptcp.engine import Engine
from tfadaptcp.leftovers import Leftovers

pytestmark = pytest.mark.usefixtures("no_hook_stays")


def save(manager, model, seed):
    rows.write(model, range(seed, seed + 20), seed=seed)
    copy = oracle.take(model)
    manager.save()
    manager.wait()
    return copy


def compile_anew(model):
    model.compile(de.DynamicEmbeddingOptimizer(oracle.OPTIMIZERS["adam"]()), "mse")


def check_newest(directory, copy):
    fresh = oracle.build("adam", seed=9)
    fresh.load_adaptcp(directory)
    oracle.check(copy, fresh)


def test_two_managers_in_turn_keep_what_they_are_to(tmp_path):
    """Each checkpoint is complete, as the other one has moved on; none had a parent, so none was ever too old."""
    model = oracle.build("adam")
    managers = [tfadaptcp.CheckpointManager(model, tmp_path / name, max_to_keep=2) for name in "ab"]
    for turn in range(5):
        copies = [save(manager, model, 2 * turn + i) for i, manager in enumerate(managers)]
    for name, copy in zip("ab", copies):
        assert len(heads_of(tmp_path / name)) == 2
        assert len(os.listdir(tmp_path / name / "data")) <= 3, "data of a manifest goes one pass later"
        check_newest(tmp_path / name, copy)


def test_optimizers_in_turn_keep_what_they_are_to(tmp_path):
    """New trackers know of no head. What they save complete follows the checkpoints before all the same."""
    model = oracle.build("adam")
    for turn in range(5):
        compile_anew(model)
        callback = tfadaptcp.AdaptCPCallback(tmp_path, 2, max_to_keep=2)
        model.fit(data(2, first=2 * turn), callbacks=[callback], verbose=0)
        assert len({head.identity for head in heads_of(tmp_path)}) == min(turn + 1, 2)
    check_newest(tmp_path, oracle.take(model))


def test_a_claim_that_fails_halfway_is_no_other_coordinators(tmp_path, monkeypatch):
    """The claim was there, and what came after it failed: the older one was used again, and fenced by it."""
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path / "a")
    save(manager, model, 0)
    model.load_adaptcp(tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(claiming.commit, "commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            manager.save()
    other = tfadaptcp.CheckpointManager(oracle.build("adam", seed=3), tmp_path / "b")
    other.save()
    other.wait()
    model.load_adaptcp(tmp_path / "b")
    copy = save(manager, model, 1)
    check_newest(tmp_path / "a", copy)


def test_a_directory_that_was_emptied_in_between(tmp_path):
    """Sequences begin at 1 again there, below that of the head the model had in it."""
    model = oracle.build("adam")
    managers = {}
    for turn in range(3):
        for name in "ab":
            managers[name] = tfadaptcp.CheckpointManager(model, tmp_path / name)
            copy = save(managers[name], model, turn)
            managers[name].close()
    for area in ("claims", "data", "manifests"):
        for path in sorted((tmp_path / "a" / area).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    compile_anew(model)
    copy = save(tfadaptcp.CheckpointManager(model, tmp_path / "a"), model, 7)
    check_newest(tmp_path / "a", copy)


def test_a_first_checkpoint_that_fails_leaves_nothing(tmp_path):
    """There were no manifests whose removal could be made durable: nothing was removed, and the disk filled up."""
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    rows.write(model, range(50))
    for _ in range(2):
        # Its third operation: that file is there, and not durable.
        with faults.plan("errno=28@3;match=base-"):
            manager.save()
            with pytest.raises(tfadaptcp.SaveFailedError):
                manager.wait()
        assert os.listdir(tmp_path / "data") == []
    check_newest(tmp_path, save(manager, model, 3))


def test_a_restored_head_without_a_manifest_is_not_gone_on_from(tmp_path):
    """Whoever removed the manifest is about to remove the objects, which are all there still."""
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    save(manager, model, 1)
    manager.close()
    other = oracle.build("adam", seed=4)
    name = other.load_adaptcp(tmp_path).checkpoint
    os.unlink(tmp_path / layout.manifest_path(layout.parse_head(name)))
    copy = save(tfadaptcp.CheckpointManager(other, tmp_path, "incremental"), other, 2)
    head, = heads_of(tmp_path)
    assert {ref.sequence for ref in head.objects} == {head.sequence}
    check_newest(tmp_path, copy)


def test_a_superseded_manager_on_the_same_servers_stops(tmp_path):
    """They refuse its cut, before it has looked at the claims. It was told that a checkpoint had failed, each time."""
    model = oracle.build("adam")
    first, second = (tfadaptcp.CheckpointManager(model, tmp_path) for _ in range(2))
    save(first, model, 1)
    copy = save(second, model, 2)
    for _ in range(2):
        with pytest.raises(tfadaptcp.FencedError, match="Another coordinator has claimed"):
            first.save()
    check_newest(tmp_path, copy)


def test_a_superseded_manager_whose_save_is_refused_stops(tmp_path, monkeypatch):
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    save(manager, model, 1)

    def refused(self, *unused):
        claims.take(Store(), str(tmp_path))
        raise tf.errors.FailedPreconditionError(None, None, "generation 1 is superseded")

    with monkeypatch.context() as patch:
        patch.setattr(tfadaptcp.engine.Engine, "save", refused)
        manager.save()
        with pytest.raises(tfadaptcp.FencedError, match="Another coordinator has claimed"):
            manager.wait()
    with pytest.raises(tfadaptcp.FencedError):
        manager.save()


@pytest.mark.parametrize("directory, order", [("/checkpoints", ["tidied", "saved"]),
                                              ("gs://bucket/checkpoints", ["saved", "tidied"])])
def test_what_failed_scans_left_goes_before_a_save_or_beside_it(directory, order):
    """The room of a local disk may be needed; a remote store may take minutes, and rows wait."""
    done, is_saved = [], threading.Event()

    def tidy():
        if "://" in directory:
            assert is_saved.wait(60)
        done.append("tidied")

    with pytest.raises(OSError), Leftovers(Store(), directory, 1).tidied(tidy):
        done.append("saved")
        is_saved.set()
        raise OSError("a save that fails waits for it, too")
    assert done == order


def test_what_a_new_base_would_have(tmp_path):
    model = oracle.build("adam", tables=2)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    save(manager, model, 1)
    head, = heads_of(tmp_path)
    names = [group.name for group in head.groups]

    def bytes_of(sizes, in_base, now, base=None, policy=head.policy):
        objects = tuple(dataclasses.replace(ref, bytes=base or 0) if ref.kind == "base" else ref for ref in head.objects)
        return chain.policy_stats(dataclasses.replace(
            head, objects=objects, policy=policy, rows={"base": dict(zip(names, in_base))}, table_rows=dict(zip(names, now)),
            stats={**head.stats, chain.MEASURED: {"bytes_per_row": dict(zip(names, sizes))}})).bytes_of_new_base

    files = sum(ref.kind == "base" for ref in head.objects)
    base = (4000 * 1000 + 40 * 1000) // files
    # Small rows, ten times as many; large ones.
    assert bytes_of((4000, 40), (1000, 1000), (1000, 10_000), base) == pytest.approx(4_400_000)
    assert bytes_of((4000, 40), (1000, 1000), (10_000, 1000), base) == pytest.approx(40_040_000)
    assert bytes_of((4000, 40), (1000, 1000), (100, 1000), base) == pytest.approx(440_000)
    # A base of nothing but the frames of its files; an empty one; one of nothing now.
    assert bytes_of((4000, 40), (1, 1), (1000, 1000), 50_000) == 50_000 * files + 4040 * 999
    assert bytes_of((4000, 40), (0, 0), (1000, 1000), 500) == 500 * files + 4_040_000
    assert bytes_of((4000, 40), (0, 0), (0, 0), 500) == 500 * files
    assert bytes_of((4000, 40), (1000, 1000), (0, 0), base) == 0
    # Rows are written in another width than those of the base were: as they are measured.
    assert bytes_of((400, 4), (1000, 1000), (1000, 1000), base) == pytest.approx(4_040_000)
    narrow = {**head.policy, "quantization": {"bits": 4}}
    assert bytes_of((400, 4), (1000, 1000), (1000, 1000), base, policy=narrow) == pytest.approx(404_000)
    stats = chain.policy_stats(head)
    assert stats.bytes_of_new_base == stats.bytes_in_base > 0
    assert stats.bytes_dense == sum(ref.bytes for ref in head.objects if ref.kind == "dense") > 0


def test_two_callbacks_of_one_rhythm_both_save(tmp_path):
    """The first is always writing when the second is due: it was skipped each time."""
    model = oracle.build("adam")

    class Slow(tf.keras.callbacks.Callback):
        """Makes each checkpoint end `after` so many batches, so that the first callback is always writing, or due again."""

        def on_train_batch_end(self, batch, logs=None):
            if batch % after == 0:
                for callback in callbacks:
                    callback.manager.wait()
            during[:] = [callback.manager.stats()["committed"] for callback in callbacks]

    for after in (1, 4):
        callbacks = [tfadaptcp.AdaptCPCallback(tmp_path / f"{after}{name}", 4, max_to_keep=99) for name in "ab"]
        during = []
        model.fit(data(24), callbacks=[*callbacks, Slow()], verbose=0)
        assert min(during) >= 2, (after, during)


def test_two_callbacks_that_save_at_the_end_of_each_epoch(tmp_path):
    model = oracle.build("adam")
    callbacks = [tfadaptcp.AdaptCPCallback(tmp_path / name, "epoch", max_to_keep=99) for name in "ab"]
    model.fit(data(3), epochs=4, callbacks=callbacks, verbose=0)
    assert [{head.epoch for head in heads_of(tmp_path / name)} for name in "ab"] == [{1, 2, 3, 4}] * 2


def test_a_cut_that_fails_at_the_end_of_fit_is_tried_again(tmp_path, monkeypatch):
    model = oracle.build("adam")
    callback = tfadaptcp.AdaptCPCallback(tmp_path, 4)
    cut, failed = tfadaptcp.engine.Engine.cut, []

    def failing(self, *args, **kwargs):
        if int(model.optimizer.iterations.numpy()) == 6 and not failed:
            failed.append(True)
            raise tfadaptcp.DeadlineError("no answer")
        return cut(self, *args, **kwargs)

    monkeypatch.setattr(tfadaptcp.engine.Engine, "cut", failing)
    model.fit(data(6), callbacks=[callback], verbose=0)
    assert failed and heads_of(tmp_path)[-1].step == 6
    check_newest(tmp_path, oracle.take(model))


def test_a_manager_that_is_superseded_while_it_claims_stops(tmp_path, monkeypatch):
    """The next attempt would have claimed once more, and stopped the newer one."""
    model = oracle.build("adam")
    save(tfadaptcp.CheckpointManager(model, tmp_path), model, 1)
    fresh = oracle.build("adam", seed=9)
    fresh.load_adaptcp(tmp_path)
    manager, commit = tfadaptcp.CheckpointManager(fresh, tmp_path), claiming.commit.commit

    def late(*args):
        claims.take(Store(), str(tmp_path))
        commit(*args)

    with monkeypatch.context() as patch:
        patch.setattr(claiming.commit, "commit", late)
        with pytest.raises(tfadaptcp.FencedError, match="Another coordinator has claimed"):
            manager.save()
    newest = claims.list_claims(Store(), str(tmp_path))[-1]
    with pytest.raises(tfadaptcp.FencedError):
        manager.save()
    assert claims.list_claims(Store(), str(tmp_path))[-1] == newest


def test_a_new_manager_ends_the_scan_of_the_one_before(tmp_path, monkeypatch):
    """Nobody would ever have gone by it, and it wrote a base."""
    model = oracle.build("adam")
    first, second = (tfadaptcp.CheckpointManager(model, tmp_path) for _ in range(2))
    save(first, model, 1)
    voided = []
    monkeypatch.setattr(second.engine, "void_scans", voided.append)
    save(first, model, 2)
    assert not voided
    save(second, model, 3)
    assert len(voided) == 1


def test_another_directory_saves_first_after_a_rollback(tmp_path, monkeypatch):
    """Then the restored head was not published again, and until a base was written the newest was what had been rolled back."""
    model = oracle.build("adam")
    first, second = (tfadaptcp.CheckpointManager(model, tmp_path / name, "incremental") for name in "ab")
    kept = save(first, model, 1)
    name = first.latest_checkpoint
    save(first, model, 2)
    model.load_adaptcp(tmp_path / "a", name)
    later = save(second, model, 3)
    with monkeypatch.context() as patched:
        patched.setattr(first.engine, "save", lambda *_: 1 / 0)
        first.save()
        with pytest.raises(tfadaptcp.SaveFailedError):
            first.wait()
    check_newest(tmp_path / "a", kept)
    check_newest(tmp_path / "b", later)
    # And the trackers go on from neither: what was saved in the one is not in the other.
    for turn in range(4, 8):
        manager = (first, second)[turn % 2]
        copy = save(manager, model, turn)
        check_newest(tmp_path / "ab"[turn % 2], copy)


def test_room_that_a_failed_attempt_has_taken_in_a_remote_store(tmp_path, monkeypatch):
    """Nothing was removed before a checkpoint was committed, and none could be, as there was no room."""
    directory = f"ram://{tmp_path.name}-{os.getpid()}/checkpoints"
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, directory, "incremental")
    save(manager, model, 1)
    saved = manager.engine.save

    def full(*args):
        saved(*args)  # what was written before the rest had no room
        raise tfadaptcp.StoreUnavailableError("no room")

    def attempts():
        return tf.io.gfile.listdir(f"{directory}/data")

    before = attempts()
    with monkeypatch.context() as patched:
        patched.setattr(manager.engine, "save", full)
        for _ in range(2):
            with pytest.raises(tfadaptcp.StoreUnavailableError):
                save(manager, model, 2)
    left = set(attempts()) - set(before)
    assert len(left) == 1, "the one before was removed"

    def when_there_is_room(*args):
        while left & set(attempts()):
            time.sleep(0.01)
        return saved(*args)

    monkeypatch.setattr(manager.engine, "save", when_there_is_room)
    check_newest(directory, save(manager, model, 3))


def test_a_start_on_a_disk_that_a_killed_attempt_has_filled(tmp_path, caplog):
    """The start-up probe failed, and so did the head that was to be published again: nobody removed anything."""
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    copy = save(manager, model, 1)
    manager.close()
    head = heads_of(tmp_path)[-1].head
    left = tmp_path / layout.data_path(layout.head_name(head.generation, head.sequence + 1, head.run)) / "base-ps0-00000.seg"
    left.parent.mkdir()
    left.write_bytes(b"x")

    def no_room(op, path):
        if op == "write" and left.exists():
            raise OSError(errno.ENOSPC, "no room", path)

    set_fault_hook(no_room)
    fresh = oracle.build("adam", seed=4)
    manager = tfadaptcp.CheckpointManager(fresh, tmp_path, "incremental")
    assert "is full; checkpoints fail until there is room" in caplog.text
    manager.restore()
    oracle.check(copy, fresh)
    copy = save(manager, fresh, 2)
    assert not left.exists()
    check_newest(tmp_path, copy)


def test_a_manifest_that_could_not_be_synced_nor_removed(tmp_path):
    """It is there, and a second sync says it is durable, though the kernel may have dropped it: it is not acknowledged. Its
    data goes when it is too old, all the same."""
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", max_to_keep=1)
    save(manager, model, 1)

    def broken(op, path):
        if "/manifests/" in path and op in ("fsync", "delete"):
            raise OSError(errno.EIO, "broken", path)

    set_fault_hook(broken)
    with pytest.raises(tfadaptcp.CommitOutcomeUnknownError, match="may not survive"):
        save(manager, model, 2)
    set_fault_hook(None)
    unknown = heads_of(tmp_path)[-1].name
    for turn in range(3, 8):
        copy = save(manager, model, turn)
    assert unknown not in [head.name for head in heads_of(tmp_path)]
    assert not (tmp_path / "data" / unknown).exists() or any(
        unknown in ref.path for head in heads_of(tmp_path) for ref in head.objects)
    check_newest(tmp_path, copy)


def test_a_model_that_can_not_be_tracked_anew_at_once(tmp_path, monkeypatch):
    """`fit` ended, whatever it was to do when a checkpoint fails."""
    model = oracle.build("adam")
    callback = tfadaptcp.AdaptCPCallback(tmp_path, 2, on_pending="wait", save_at_end=False)
    attach, failed = Engine._attach, []

    def slow_gate(self):
        if callback.manager is not None and not failed:
            failed.append(self)
            raise tf.errors.DeadlineExceededError(None, None, "the gate")
        attach(self)

    class Grow(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                self.model.extra = tf.Variable(1.0, name="extra")

    monkeypatch.setattr(Engine, "_attach", slow_gate)
    model.fit(data(8), callbacks=[Grow(), callback], verbose=0)
    assert failed and callback.manager.stats()["committed"] >= 2
    assert any(spec.name == "extra" for spec in heads_of(tmp_path)[-1].dense)


def test_a_directory_that_is_gone_is_no_matter_of_the_others(tmp_path):
    """What the model came from elsewhere was forgotten with it, and heads there had no successor, and stayed for ever."""
    model = oracle.build("adam")
    for turn in range(4):
        managers = [tfadaptcp.CheckpointManager(model, tmp_path / name, max_to_keep=1) for name in ("scratch", "kept")]
        copy = [save(manager, model, 2 * turn + i) for i, manager in enumerate(managers)][1]
        for manager in managers:
            manager.close()
        shutil.rmtree(tmp_path / "scratch")
    assert len({head.identity for head in heads_of(tmp_path / "kept")}) == 1
    check_newest(tmp_path / "kept", copy)


def test_training_that_stands_still_does_not_wait_for_retention(tmp_path, monkeypatch):
    """`capture="blocking"` promises to wait until the checkpoint is durable: what is tidied up then is beside training."""
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, tmp_path, engine=tfadaptcp.EngineOptions(capture="blocking"))
    go, collect = threading.Event(), Leftovers.collect
    monkeypatch.setattr(Leftovers, "collect", lambda *args: go.wait(60) and collect(*args))
    rows.write(model, range(20))
    copy = oracle.take(model)
    manager.save()
    assert manager.is_saving and manager.stats()["committed"] == 1
    check_newest(tmp_path, copy)
    go.set()
    manager.wait()
    assert not manager.is_saving
