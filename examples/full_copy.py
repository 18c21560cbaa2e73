"""A full copy of a model's state, taken without tfadaptcp: what a restored checkpoint is compared with.

Only for models that fit into the memory of one process. To be called while no step runs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de
from tensorflow_recommenders_addons.dynamic_embedding.python.ops import shadow_embedding_ops

_SCRATCH = (de.TrainableWrapper, shadow_embedding_ops.DEResourceVariable)


def take(model: tf.keras.Model) -> dict[str, np.ndarray]:
    """Returns every table, optimizer slot and dense variable: for a table its keys, sorted, and its rows beside them."""
    state = {}
    for layer in model.layers:
        if isinstance(layer, de.keras.layers.Embedding):
            tables = {slot: model.optimizer.get_slot(layer.shadow, slot).params for slot in model.optimizer.get_slot_names()}
            for name, table in {"rows": layer.params, **tables}.items():
                keys, rows = (tensor.numpy() for tensor in table.export())
                order = np.argsort(keys)
                state[f"{layer.name}/{name}/keys"], state[f"{layer.name}/{name}"] = keys[order], rows[order]
    for variable in model.variables + model.optimizer.variables():
        if not isinstance(variable, _SCRATCH):
            state[f"dense/{variable.name}"] = variable.numpy()
    return state


def save(state: dict[str, np.ndarray], path: Path) -> None:
    """Writes a copy, uncompressed."""
    path.parent.mkdir(exist_ok=True)
    with open(path, "wb") as file:
        np.savez(file, **state)


def load(path: Path) -> dict[str, np.ndarray]:
    """Reads what `save` wrote."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def differences(received: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> list[str]:
    """Compares two copies bit for bit; returns one line for each part that differs, none if they are equal."""
    found = [f"{name}: only in the {'restored model' if name in received else 'copy'}"
             for name in sorted(received.keys() ^ expected.keys())]
    for name in sorted(received.keys() & expected.keys()):
        ours, theirs = received[name], expected[name]
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            found.append(f"{name}: Received: {ours.dtype}{ours.shape}. Expected: {theirs.dtype}{theirs.shape}")
        else:
            # As bytes: 0.0 is not -0.0 here, and a NaN equals itself.
            one, other = (np.frombuffer(array.tobytes(), np.uint8).reshape(-1, array.itemsize) for array in (ours, theirs))
            count = int((one != other).any(axis=1).sum())
            if count:
                found.append(f"{name}: {count} of {ours.size} values differ")
    return found
