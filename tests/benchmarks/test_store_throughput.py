"""The benchmark of uploads and restores by several threads."""

import tfadaptcp  # noqa: F401 (before TensorFlow, for Keras 2)
from benchmarks import store_throughput


class Uncapped:
    """Notes what the proxy would be told."""

    def __init__(self):
        self.caps = []

    def cap(self, **caps):
        self.caps.append(caps)


def test_what_is_saved_is_restored_by_each_number_of_threads(tmp_path, capsys):
    proxy = Uncapped()
    samples = store_throughput.measure(proxy, str(tmp_path), 2000, [1, 3], 1e6, 2e6, 1)
    assert [sample["threads"] for sample in samples] == [1, 3]
    assert all(2000 * 3 * 16 * 4 < sample["bytes"] < 2000 * 3 * 16 * 4 * 2 for sample in samples)
    capped = {"up": 2e6, "down": 2e6, "up_each": 1e6, "down_each": 1e6}
    assert proxy.caps == [capped, {}, capped, {}]
    store_throughput.report([{"threads": 1, "bytes": 4e6, "upload": 4.0, "restore": 8.0, "read": 4e6},
                             {"threads": 4, "bytes": 4e6, "upload": 2.5, "restore": 2.0, "read": 4e6}], 1e6, 2e6)
    assert "4 thread(s); upload 2.50 s, at least 2.00, x 1.60" in capsys.readouterr().out
