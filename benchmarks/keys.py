"""Batches of keys, as a training step hands them to the tables: distinct."""

import numpy as np

ZIPF_EXPONENT = 1.2


class KeyDraws:
    """Draws batches out of the keys 0 to rows-1.

    Args:
        rows: number of keys.
        batch: keys per batch, all different, because TFRA's layers make them so before they look up.
        distribution: "uniform"; or "zipf", P(rank) ~ rank^-1.2, ranks scattered over the keys.
        seed: of the draws.
    """

    def __init__(self, rows: int, batch: int, distribution: str, seed: int = 1):
        if not 0 < batch <= rows:
            raise ValueError(f"A batch of distinct keys is not larger than the table. Received: batch={batch}, "
                             f"rows={rows}")
        if distribution not in ("uniform", "zipf"):
            raise ValueError(f"Unknown distribution. Received: {distribution!r} Expected: 'uniform' or 'zipf'")
        self._rows, self._batch, self._zipf = rows, batch, distribution == "zipf"
        self._random = np.random.default_rng(seed)

    def next(self) -> np.ndarray:
        """Returns int64 [batch], in random order."""
        drawn = np.empty(0, np.int64)
        size = 2 * self._batch
        while drawn.size < self._batch:
            # Most frequent keys first seen first: keep the order of the draws.
            drawn = np.concatenate([drawn, self._draw(size)])
            _, first = np.unique(drawn, return_index=True)
            drawn = drawn[np.sort(first)]
        return self._random.permutation(drawn[:self._batch])

    def _draw(self, n: int) -> np.ndarray:
        u = self._random.random(n)
        if not self._zipf:
            return (u * self._rows).astype(np.int64)
        a = 1 - ZIPF_EXPONENT
        ranks = (u * ((self._rows + 1.0) ** a - 1) + 1) ** (1 / a) - 1
        return np.minimum(ranks, self._rows - 1).astype(np.int64) * 2654435761 % self._rows
