"""The examples in the documentation run as they stand, apart from the paths."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

DATA = """
import numpy as np
import tensorflow as tf

def _batches(n, seed=0):
    random = np.random.default_rng(seed)
    features = {"user": random.integers(0, 200, n * 16), "item": random.integers(0, 300, n * 16)}
    return tf.data.Dataset.from_tensor_slices((features, random.normal(size=(n * 16, 1)))).batch(16)

data = _batches(120)
"""


def _run(code: str, tmp_path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, text=True, capture_output=True, timeout=250,
                          env={**__import__("os").environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _blocks(file: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(), re.DOTALL))


def test_guide(tmp_path):
    code = _blocks("docs/guide.md").replace("/checkpoints/", f"{tmp_path}/")
    assert str(tmp_path) in code
    printed = _run("import tfadaptcp\n" + DATA + code, tmp_path)
    assert "committed" in printed and "CheckpointInfo" in printed


def test_readme(tmp_path):
    code = _blocks("README.md").replace("gs://bucket/run7", str(tmp_path / "run7"))
    model = re.search(r"def build_model.*?return model\n", _blocks("docs/guide.md"), re.DOTALL)[0]
    # The guide shows that autograph may do with Keras what it does.
    start = ("import tfadaptcp\nfrom tests.support import quick_tracing\n" + DATA
             + "import tensorflow_recommenders_addons.dynamic_embedding as de\n" + model + "model = build_model()\n")
    # The first job ends after one of its epochs.
    code = code.replace("epochs=10", "epochs=1", 1).replace("epochs=10", "epochs=2")
    _run(start + code + "\nassert report.step == 120 and report.epoch == 1, report\n"
         "assert model.optimizer.iterations.numpy() == 240\n"
         "assert callback.manager.checkpoints[-1].epoch == 2\n", tmp_path)


def test_cost_model(tmp_path):
    printed = _run(_blocks("docs/cost_model.md"), tmp_path)
    text = (ROOT / "docs" / "cost_model.md").read_text()
    thresholds = re.findall(r"^(\d+) \[(.*)\]$", printed, re.MULTILINE)
    assert len(thresholds) == 3
    for period, found in thresholds:
        row = re.search(rf"\| K = {period} \|(.*)\|", text)[1].split("|")
        assert [float(cell) for cell in row] == [float(number) for number in found.split(",")]
    all_hot, best, all_cold = (float(cost) for cost in re.findall(r"by a restore, (\S+)$", printed, re.MULTILINE))
    assert best < min(all_hot, all_cold)
