"""What the callback writes for TensorBoard, read by TensorFlow's own reader."""

import sys
import time

import tensorflow as tf

import tfadaptcp
from tests.support import oracle
from tests.support.fitting import data
from tfadaptcp import policies, scalars


def read(directory):
    """{tag: {step: value}} of all event files of a directory."""
    found = {}
    for path in sorted(tf.io.gfile.glob(f"{directory}/*")):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found


def test_scalars_are_the_stats_of_each_checkpoint(tmp_path):
    model = oracle.build(tables=2)
    policy = policies.Adaptive(restore_weight=8.0, renewal="period", first_period=4, decay=0.5, max_restore_factor=20.0)
    callback = tfadaptcp.AdaptCPCallback(tmp_path / "checkpoints", 3, policy, on_pending="wait", max_to_keep=9,
                                         log_dir=tmp_path / "logs")
    seen = {}

    class Note(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            callback.manager.wait()
            stats = callback.manager.stats()
            if "step" in stats:
                seen[stats["step"]] = stats

    model.fit(data(9), verbose=0, callbacks=[callback, Note(), tf.keras.callbacks.TensorBoard(tmp_path / "logs")])
    found = read(tmp_path / "logs" / "adaptcp")
    heads = {info.step: info for info in callback.manager.checkpoints}
    assert list(heads) == list(seen) == [3, 6, 9]
    names = {"saves", "committed", "bases", "skipped", "failed", "threshold", "hot_rows", "cold_rows", "rows_by_drain",
             "rows_by_lookup", "rows_by_update", "updates_delayed", "update_wait_seconds", "capture_peak_bytes",
             "drain_wait_seconds", "cut_seconds", "drain_seconds", "upload_seconds", "save_seconds"}
    for name in names:
        values = {step: stats[name] for step, stats in seen.items()}
        for step, value in values.items():
            assert found[f"adaptcp/{name}"][step] == tf.constant(float(value)).numpy(), (name, step)
    for step, stats in seen.items():
        for name in ("predicted/hot_rows", "predicted/cost", "actual/hot_rows", "actual/cost", "hazard"):
            value = stats
            for part in name.split("/"):
                value = value.get(part) if value is not None else None
            assert found[f"adaptcp/{name}"].get(step) == (None if value is None else tf.constant(float(value)).numpy())
    assert found["adaptcp/predicted/cost"].keys() == {6, 9}, "what a row takes is not known before the first"
    # And these are what the checkpoints say of themselves.
    for step, info in heads.items():
        written = sum(values.get(step, 0) for tag, values in found.items() if tag.startswith("adaptcp/bytes/"))
        assert written == info.bytes_written
        differential = sum(info.rows.get("differential", {}).values())
        assert found["adaptcp/hot_rows"][step] == differential == sum(
            found[f"adaptcp/rows/differential/{group}"][step] for group in info.rows.get("differential", {}))
        if differential:
            assert found["adaptcp/bytes/differential"][step] > 0
    cold = found["adaptcp/cold_rows"]
    assert cold[3] == sum(heads[3].rows["base"].values())
    assert sum(cold.values()) == cold[3] + sum(heads[9].rows.get("increment", {}).values())
    assert found["adaptcp/hot_rows"][9] > 0 and found["adaptcp/committed"] == {3: 1, 6: 2, 9: 3}
    captured = {step: sum(found[f"adaptcp/rows_by_{who}"][step] for who in ("drain", "lookup", "update"))
                for step in heads}
    assert captured == {step: cold[step] + found["adaptcp/hot_rows"][step] for step in heads}


def test_nothing_is_written_unless_asked_for(tmp_path):
    model = oracle.build()
    model.fit(data(2), verbose=0, callbacks=[tfadaptcp.AdaptCPCallback(tmp_path / "checkpoints", 1)])
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_every_checkpoint_is_written_of_where_each_waits_for_the_one_before(tmp_path, monkeypatch):
    """At each end of a batch one was being written, and nothing was said but of the last."""
    save, model = tfadaptcp.engine.Engine.save, oracle.build()
    monkeypatch.setattr(tfadaptcp.engine.Engine, "save", lambda *args: time.sleep(0.5) or save(*args))
    callback = tfadaptcp.AdaptCPCallback(tmp_path / "checkpoints", 2, on_pending="wait", log_dir=tmp_path / "logs")
    model.fit(data(8), verbose=0, callbacks=[callback])
    assert list(read(tmp_path / "logs" / "adaptcp")["adaptcp/committed"].items()) == [(2, 1), (4, 2), (6, 3), (8, 4)]


def test_a_log_dir_that_cannot_be_written_to_ends_no_training(tmp_path, caplog):
    (tmp_path / "logs").write_text("a file")
    model = oracle.build()
    callback = tfadaptcp.AdaptCPCallback(tmp_path / "checkpoints", 2, on_pending="wait", log_dir=tmp_path / "logs")
    model.fit(data(6), verbose=0, callbacks=[callback])
    assert [info.step for info in callback.manager.checkpoints] == [2, 4, 6]
    assert caplog.text.count("Scalars can't be written to") == 1


def test_tensorflow_keeps_no_number(tmp_path, monkeypatch):
    """It kept each number of Python that it was given, for ever: gigabytes after 100,000 checkpoints. (tensorflow#68196)"""
    number, step = float("0.4207"), int("12345678901")
    stats = {"committed": 1, "failed": 0, "skipped": 0, "pending": False, "step": step, "threshold": number,
             "rows": {"base": {"user": number}}}
    before = sys.getrefcount(number), sys.getrefcount(step)
    scalar, handed = tf.summary.scalar, []
    monkeypatch.setattr(tf.summary, "scalar",
                        lambda tag, value, step: handed.extend([value, step]) or scalar(tag, value, step=step))
    writer = scalars.ScalarWriter(tmp_path)
    writer.write(stats)
    assert not any(isinstance(item, (int, float)) for item in handed), "as a np.float64 is"
    assert (sys.getrefcount(number), sys.getrefcount(step)) == before
    writer.close()
    expected = {step: float(tf.constant(0.4207).numpy())}
    found = read(tmp_path / "adaptcp")
    assert found["adaptcp/threshold"] == found["adaptcp/rows/base/user"] == expected
