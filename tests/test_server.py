"""Configuration of ``tfadaptcp.server``: each mistake is named."""

import json
import subprocess
import sys

import pytest

from tests.support.jobs import ROOT
from tfadaptcp import server

_CLUSTER = {"worker": ["a:1", "b:2"], "ps": ["c:3"]}


def _config(cluster=_CLUSTER, task=None):
    return json.dumps({"cluster": cluster, "task": task or {"type": "ps", "index": 0}})


def test_reads_a_good_config():
    text = _config(task={"type": "worker", "index": "1"})
    assert server.read_tf_config(text) == (_CLUSTER, "worker", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "TF_CONFIG is not set. Expected: {"),
        ("{", "TF_CONFIG is not JSON .*Received: '{'"),
        ("[]", "TF_CONFIG is not an object. Received: '\\[\\]'"),
        (json.dumps({"cluster": _CLUSTER}), 'no usable "task". Received: None'),
        (_config(task={"type": "ps", "index": "x"}), "not a number. Received: 'x'"),
        (_config(task={"type": "ps", "index": 1}), "Received: 1. Expected: 0 to 0, job 'ps'"),
        (_config(task={"type": "db", "index": 0}), "Received: 'db'. Expected one of: \\['ps'"),
        (_config(cluster=None), "not a map of jobs. Received: None"),
        (_config(cluster={"ps": "c:3"}), "Job 'ps' of the cluster is not a list. Received: 'c:3'"),
        (_config(cluster={"ps": ["c"]}), "malformed. Received: 'c'. Expected: \"host:port\""),
    ],
)
def test_names_what_is_wrong(text, message):
    with pytest.raises(server.ServerConfigError, match=message):
        server.read_tf_config(text)


def test_inter_op_threads(monkeypatch):
    monkeypatch.delenv(server.INTER_OP_THREADS_VARIABLE, raising=False)
    assert server.inter_op_threads() == 4
    monkeypatch.setenv(server.INTER_OP_THREADS_VARIABLE, "3")
    assert server.inter_op_threads() == 3
    assert server.inter_op_threads(2) == 2
    for wrong in ("1", "many"):
        monkeypatch.setenv(server.INTER_OP_THREADS_VARIABLE, wrong)
        with pytest.raises(server.ServerConfigError, match=f"Received: '{wrong}'"):
            server.inter_op_threads()


def test_arguments_of_run():
    with pytest.raises(server.ServerConfigError, match="need `cluster_spec`"):
        server.run(job="ps", index=0)
    with pytest.raises(server.ServerConfigError, match="needs `job` and `index`"):
        server.run(_CLUSTER)


@pytest.mark.timeout(120)
def test_program_ends_with_2_and_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "tfadaptcp.server"],
        cwd=ROOT,
        env={"PATH": "", "TF_CONFIG": "{", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "tfadaptcp.server: TF_CONFIG is not JSON" in done.stderr
