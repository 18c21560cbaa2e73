"""What went wrong for others in one process, and must not here. In brackets: where it was reported."""

import dataclasses

import pytest
import tensorflow as tf

import tfadaptcp
from tests.support import oracle, rows
from tests.support.fitting import Watch, data
from tests.support.saving import heads_of
from tfadaptcp import policies, restore
from tfadaptcp.checkpoint.manifest import sum_rows


# ------------------------------------------------------------------ state


def test_rows_restored_equal_the_manifests_for_each_table(tmp_path):
    """(recommenders-addons#451, #363, #403)"""
    model = oracle.build("adam", tables=3)
    for i, (_, variable) in enumerate(oracle.tables_of(model)):
        variable.upsert(tf.range(10 + i, dtype=tf.int64), tf.random.normal((10 + i, variable.dim)))
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    copy = oracle.take(model)
    manager.save()
    manager.wait()
    head = heads_of(tmp_path)[-1]
    assert head.table_rows == copy.rows() and len(head.table_rows) == 9
    fresh = oracle.build("adam", tables=3, seed=8)
    assert fresh.load_adaptcp(tmp_path).rows == copy.rows()
    oracle.check(copy, fresh)


def change_manifest(directory, change):
    """Saves a model of 20 rows, and has the manifest say what `change` makes of it. Returns the model."""
    model = oracle.build("adam")
    manager = tfadaptcp.CheckpointManager(model, directory)
    rows.write(model, range(20))
    manager.save()
    manager.wait()
    head = heads_of(directory)[-1]
    (directory / "manifests" / f"{head.name}.json").write_bytes(change(head).to_json())
    return model


def test_a_manifest_with_other_rows_than_the_files_hold_is_refused(tmp_path):
    """(recommenders-addons#451)"""
    def one_more(head):
        objects = tuple(ref if ref.kind != "base" else
                        dataclasses.replace(ref, rows={group: n + 1 for group, n in ref.rows.items()}) for ref in head.objects)
        return dataclasses.replace(head, objects=objects, rows=sum_rows(objects))

    model = change_manifest(tmp_path, one_more)
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match="20.*21"):
        model.load_adaptcp(tmp_path)


@pytest.mark.parametrize("counted", [210, 1])
def test_a_table_that_tfra_has_miscounted_is_restored(counted, tmp_path, caplog):
    """Its count drifts with inserts and removals; in the end every checkpoint of a small table was taken for damaged."""
    model = change_manifest(tmp_path, lambda head: dataclasses.replace(
        head, table_rows={**head.table_rows, "emb0-parameter/m": counted}))
    copy = oracle.take(model)
    assert model.load_adaptcp(tmp_path).rows == copy.rows()
    oracle.check(copy, model)
    assert ("WARNING", True) in [(record.levelname, f"TFRA counted {counted}" in record.message) for record in caplog.records]


def test_a_table_that_lacks_what_was_inserted_is_refused():
    with pytest.raises(tf.errors.DataLossError, match="table b: Received: 60 rows.*the 100 that were inserted"):
        restore._check_rows({"a": 100, "b": 100}, {"a": 101, "b": 60}, {})


# ------------------------------------------------------------------ the cut


def test_step_epoch_and_batch_are_those_of_the_cut(tmp_path):
    """(Megatron-Bridge#3267)"""
    model = oracle.build("adam")
    trainer = oracle.Trainer(model)
    manager = tfadaptcp.CheckpointManager(model, tmp_path)
    trainer.train(4)
    copy = oracle.take(model)
    info = manager.save(epoch=2, epoch_start_step=1)
    trainer.train(9)
    assert (info.step, info.epoch, info.batch) == (4, 2, 3)
    assert manager.wait().step == 4
    report = model.load_adaptcp(tmp_path)
    assert (report.step, report.epoch, report.batch) == (4, 2, 3)
    oracle.check(copy, model)


@pytest.mark.parametrize("save_freq", [4, "epoch"])
def test_fit_twice_and_a_restart_with_initial_epoch(save_freq, tmp_path):
    """(Megatron-Bridge#3267)"""
    model = oracle.build("adam", tables=2)
    callback = tfadaptcp.AdaptCPCallback(tmp_path, save_freq, "incremental", max_to_keep=50, on_pending="wait")
    watch = Watch()
    model.fit(data(6), epochs=2, verbose=0, callbacks=[watch, callback])
    model.fit(data(6, 12), epochs=3, initial_epoch=2, verbose=0, callbacks=[watch, callback])
    places = [(info.step, info.epoch, info.batch) for info in callback.manager.checkpoints]
    if save_freq == "epoch":
        assert places == [(6, 1, 0), (12, 2, 0), (18, 3, 0)]
    else:
        # Every 4 batches over the first fit, and at its end; so in the second.
        assert places == [(4, 0, 4), (8, 1, 2), (12, 2, 0), (16, 2, 4), (18, 3, 0)]
    for info in callback.manager.checkpoints:
        model.load_adaptcp(tmp_path, info.name)
        oracle.check(watch.at_step[info.step], model, info.name)

    fresh = oracle.build("adam", tables=2, seed=4)
    again = tfadaptcp.AdaptCPCallback(tmp_path, save_freq, "incremental", max_to_keep=50, restore=True)
    restored = Watch()
    fresh.fit(data(6, 18), epochs=4, initial_epoch=3, verbose=0, callbacks=[restored, again])
    assert (again.report.step, again.report.epoch, again.report.batch) == (18, 3, 0)
    assert min(restored.at_step) == 19
    newest = again.manager.checkpoints[-1]
    assert (newest.step, newest.epoch, newest.batch) == (24, 4, 0)
    model.load_adaptcp(tmp_path)
    oracle.check(restored.at_step[24], model)


def test_steps_go_backwards_after_a_rollback(tmp_path):
    """(orbax#527, tensorpack#637)"""
    model = oracle.build("adam")
    trainer = oracle.Trainer(model)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", max_to_keep=9)
    names = []
    for _ in range(3):
        trainer.train(3)
        names.append(manager.save().name)
        manager.wait()
    manager.restore(names[0])
    trainer.train(1)
    copy = oracle.take(model)
    manager.save()
    newest = manager.wait()
    assert [info.step for info in manager.checkpoints] == [3, 6, 9, 3, 4]
    assert manager.latest_checkpoint == newest.name
    fresh = oracle.build("adam", seed=4)
    assert fresh.load_adaptcp(tmp_path).step == 4
    oracle.check(copy, fresh)
    # And when the step is set back by hand.
    model.optimizer.iterations.assign(1)
    manager.save()
    assert manager.wait().step == 1 and fresh.load_adaptcp(tmp_path).step == 1


# ------------------------------------------------------------------ failures


class BrokenData:
    """While entered, no attempt can write its files: `data` is a file."""

    def __init__(self, directory):
        self.data, self.aside = directory / "data", directory / "aside"

    def __enter__(self):
        self.data.rename(self.aside)
        self.data.write_text("")

    def __exit__(self, *unused):
        self.data.unlink()
        self.aside.rename(self.data)


def test_a_failed_save_surfaces_in_wait_and_its_rows_are_in_the_next(tmp_path):
    """(orbax#605)"""
    model = oracle.build("adam")
    rows.write(model, range(50))
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental", max_to_keep=9)
    manager.save()
    manager.wait()
    rows.write(model, range(10, 30), seed=1)
    rows.remove(model, [2, 3])
    with BrokenData(tmp_path):
        manager.save()
        with pytest.raises((tfadaptcp.SaveFailedError, tfadaptcp.StoreUnavailableError), match="0000000002"):
            manager.wait()
    assert manager.stats()["failed"] == 1 and len(manager.checkpoints) == 1
    assert manager.wait().sequence == 1, "raised once; the one before stands"
    rows.write(model, [40], seed=2)
    copy = oracle.take(model)
    manager.save()
    info = manager.wait()
    assert info.rows["increment"] == {"emb0-parameter": 23}
    model.load_adaptcp(tmp_path)
    oracle.check(copy, model)


@pytest.mark.parametrize("on_pending", ["wait", "skip"])
def test_a_failure_is_not_swallowed_by_the_next_save(on_pending, tmp_path):
    """(orbax#605)"""
    model = oracle.build("adam")
    rows.write(model, range(50))
    manager = tfadaptcp.CheckpointManager(model, tmp_path, "incremental")
    manager.save()
    manager.wait()
    with BrokenData(tmp_path):
        manager.save()
        manager._pending.thread.join()
    assert manager.save(on_pending) is not None
    with pytest.raises((tfadaptcp.SaveFailedError, tfadaptcp.StoreUnavailableError), match="0000000002"):
        manager.wait()
    assert manager.wait().sequence == 3


def fit_with_a_failure(directory, on_failure, on_pending):
    """Trains 12 batches; the files of the checkpoint of batch 6 can't be written. Returns the callback and the model."""
    model = oracle.build("adam")
    callback = tfadaptcp.AdaptCPCallback(directory, 3, "incremental", max_to_keep=9, on_failure=on_failure,
                                         on_pending=on_pending)
    broken = BrokenData(directory)

    class Breaker(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:
                callback.manager.wait()
                broken.__enter__()
            if batch == 6:  # that of batch 6 was made at the end of batch index 5
                callback.manager._pending is None or callback.manager._pending.thread.join()
                broken.__exit__()

    try:
        model.fit(data(12), verbose=0, callbacks=[Breaker(), callback])
    finally:
        if broken.aside.exists():
            broken.__exit__()
    return callback, model


@pytest.mark.parametrize("on_pending", ["wait", "skip"])
def test_training_goes_on_after_a_failed_save(on_pending, tmp_path, caplog):
    """(orbax#605)"""
    callback, model = fit_with_a_failure(tmp_path, "continue", on_pending)
    assert "A checkpoint failed, training goes on" in caplog.text
    assert [info.step for info in callback.manager.checkpoints] == [3, 9, 12]
    copy = oracle.take(model)
    fresh = oracle.build("adam", seed=4)
    fresh.load_adaptcp(tmp_path)
    oracle.check(copy, fresh)


def test_a_failed_save_stops_training_at_the_next_batch(tmp_path):
    """(orbax#605)"""
    with pytest.raises((tfadaptcp.SaveFailedError, tfadaptcp.StoreUnavailableError)):
        fit_with_a_failure(tmp_path, "stop", "skip")
    fresh = oracle.build("adam")
    assert fresh.load_adaptcp(tmp_path).step == 3


# ------------------------------------------------------------------ damage


def damaged_directory(tmp_path):
    """Two heads whose objects are all there, of every kind; returns copies by name."""
    model = oracle.build("adam")
    policy = policies.Adaptive(restore_weight=8.0, renewal="period", first_period=5, decay=0.5, max_restore_factor=20.0)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, policy, max_to_keep=9)
    copies = {}
    for i in range(4):
        rows.write(model, range(100) if i == 0 else [*range(10), 50 + i], seed=i)
        copies[manager.save().name] = oracle.take(model)
        manager.wait()
    return model, copies


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_every_damaged_file_is_named_and_the_head_before_restored(damage, tmp_path, caplog):
    """(tensorflow#39033, tensorflow#61449)"""
    model, copies = damaged_directory(tmp_path)
    heads = heads_of(tmp_path)
    newest = heads[-1]
    assert {ref.kind for ref in newest.objects} == {"base", "increment", "differential", "dense"}
    for ref in newest.objects:
        path = tmp_path / ref.path
        whole = path.read_bytes()
        at = 8 + len(whole) // 2
        if damage == "flip":
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
        elif damage == "truncate":
            path.write_bytes(whole[:at])
        else:
            path.unlink()
        with pytest.raises(tfadaptcp.CheckpointCorruptError) as caught:
            model.load_adaptcp(tmp_path, newest.name)
        assert ref.path in str(caught.value)
        if damage == "flip":
            assert "at byte" in str(caught.value)
        # The newest head that doesn't need the file.
        able = [head.name for head in heads if ref not in head.objects]
        caplog.clear()
        if able:
            report = model.load_adaptcp(tmp_path)
            assert report.checkpoint == able[-1]
            assert ref.path in caplog.text and "Falling back" in caplog.text
            oracle.check(copies[able[-1]], model, f"without {ref.path}")
        else:
            with pytest.raises(tfadaptcp.CheckpointCorruptError):
                model.load_adaptcp(tmp_path)
        path.write_bytes(whole)
    model.load_adaptcp(tmp_path)
    oracle.check(copies[newest.name], model)


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damaged_manifest(damage, tmp_path):
    model, copies = damaged_directory(tmp_path)
    newest, before = list(copies)[-1], list(copies)[-2]
    path = tmp_path / "manifests" / f"{newest}.json"
    whole = path.read_bytes()
    if damage == "flip":
        path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    elif damage == "truncate":
        path.write_bytes(whole[:-30])
    else:
        path.unlink()
    error = tfadaptcp.CheckpointNotFoundError if damage == "remove" else tfadaptcp.CheckpointCorruptError
    with pytest.raises(error, match=newest):
        model.load_adaptcp(tmp_path, newest)
    assert model.load_adaptcp(tmp_path).checkpoint == before
    oracle.check(copies[before], model)


def test_a_fallback_that_does_not_fit_is_told_as_damage(tmp_path):
    """By then the tables are empty, which a mismatch says they are not."""
    other = oracle.build("adam", dim=6)
    rows.write(other, range(20), seed=1)
    manager = tfadaptcp.CheckpointManager(other, tmp_path, max_to_keep=9)
    manager.save()
    manager.wait()
    model = oracle.build("adam", dim=4)
    rows.write(model, range(20), seed=1)
    manager = tfadaptcp.CheckpointManager(model, tmp_path, max_to_keep=9)
    manager.save()
    manager.wait()
    newest = heads_of(tmp_path)[-1]
    path = tmp_path / [ref.path for ref in newest.objects if ref.kind == "base"][0]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match="is damaged: .* does not fit the model"):
        model.load_adaptcp(tmp_path)
