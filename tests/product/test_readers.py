"""Reading never writes, and a checkpoint that retention removes under a reader is survived by taking the newest again."""

import contextlib
import io
import json

import pytest

import tfadaptcp
from tests.support import oracle, rows
from tfadaptcp import cli
from tfadaptcp.checkpoint import commit

READERS = ["load_adaptcp", "partial", "read_rows", "verify", "ls", "checkpoints"]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A model that is being saved, with its manager, and another one to read into."""
    directory = tmp_path_factory.mktemp("job") / "run"
    model = oracle.build("adam", tables=2)
    manager = tfadaptcp.CheckpointManager(model, directory, "incremental", max_to_keep=1)
    rows.write(model, range(20))
    manager.save()
    manager.wait()
    return model, manager, directory


@pytest.fixture(scope="module")
def reader(job):
    return oracle.build("adam", tables=2, seed=9)


def use(how, reader, directory):
    """Returns the step or rows that were read, None where there is nothing to compare."""
    if how == "load_adaptcp":
        reader.load_adaptcp(directory)
        return oracle.take(reader).tables
    if how == "partial":
        reader.load_adaptcp(directory, tables="emb0*")
        return {name: rows for name, rows in oracle.take(reader).tables.items() if name.startswith("emb0")}
    if how == "read_rows":
        return {"emb0-parameter": {int(key): (0, row.tobytes()) for key, row in
                                   tfadaptcp.read_rows(directory, "emb0-parameter").as_numpy_iterator()}}
    if how == "checkpoints":
        return None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert cli.main([how, "--json", str(directory)]) == 0
    found = json.loads(printed.getvalue())
    assert found["checkpoints"] and not found["damage"]


def state(directory):
    return {str(path): (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
            for path in [directory, *directory.rglob("*")] for stat in [path.stat()]}


@pytest.mark.parametrize("how", READERS)
def test_reading_writes_nothing(how, job, reader):
    _, manager, directory = job
    before = state(directory)
    if how == "checkpoints":
        assert manager.checkpoints and manager.latest_checkpoint
    use(how, reader, directory)
    assert state(directory) == before


class Removal:
    """At an operation on a file, retention removes the checkpoint that is being read: a newer one has come."""

    def __init__(self, model, manager, times):
        self.model, self.manager, self.times = model, manager, times
        self.step = 0

    def __call__(self):
        if self.times == 0:
            return
        self.times -= 1
        self.step += 1
        rows.write(self.model, range(self.step, 20 + self.step), seed=self.step)
        # A base, so that nothing of the one before is needed; data goes one pass after its manifest.
        for _ in range(3):
            self.manager._engine.lineage.move_to(self.manager._directory, None)
            self.manager.save()
            self.manager.wait()


@pytest.mark.parametrize("how", ["load_adaptcp", "partial", "read_rows", "verify"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_checkpoint_is_removed_under_its_reader(how, times, job, reader, monkeypatch):
    model, manager, directory = job
    removal = Removal(model, manager, times)
    list_heads = commit.list_heads

    def listed(store, path):
        heads = list_heads(store, path)
        if not manager.is_saving:
            with monkeypatch.context() as patch:  # the manager's own listings
                patch.setattr(commit, "list_heads", list_heads)
                removal()
        return heads

    monkeypatch.setattr(commit, "list_heads", listed)
    found = use(how, reader, directory)
    assert removal.times == 0
    monkeypatch.undo()
    if found is not None:
        expected = oracle.take(model).tables
        assert {name: {key: row for key, (_, row) in table.items()} for name, table in found.items()} == \
            {name: {key: row for key, (_, row) in expected[name].items()} for name in found}


def test_a_checkpoint_asked_for_by_name_that_is_gone(job, reader, monkeypatch):
    model, manager, directory = job
    name = manager.latest_checkpoint
    load = commit.load
    removal = Removal(model, manager, 1)

    def loaded(*args):
        head = load(*args)
        removal()
        return head

    monkeypatch.setattr(commit, "load", loaded)
    # Not that there is none of that name, which would mean that the tables are as they were.
    with pytest.raises(tfadaptcp.CheckpointCorruptError, match=f"{name} .* was removed while it was read, .* are empty"):
        reader.load_adaptcp(directory, name)


def test_ls_passes_over_a_manifest_that_is_removed_after_it_was_listed(job, monkeypatch, capsys):
    model, manager, directory = job
    removal = Removal(model, manager, 1)
    store_list = manager._store.__class__.list

    def listed(self, path):
        names = store_list(self, path)
        if path.endswith("manifests") and not manager.is_saving:
            with monkeypatch.context() as patch:
                patch.setattr(manager._store.__class__, "list", store_list)
                removal()
        return names

    monkeypatch.setattr(manager._store.__class__, "list", listed)
    assert cli.main(["ls", str(directory)]) == 0
    printed = capsys.readouterr()
    assert manager.latest_checkpoint in printed.out and not printed.err
