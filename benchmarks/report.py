"""Runs the parts of a benchmark and prints what they found."""

import argparse
import os

from benchmarks import restore_cost, save_cost, step_cost
from benchmarks.measuring import Neighbours, machine, median_cpu, median_wall, ratio, timed
from benchmarks.tables import AdamTables

# Not asserted: machines differ. What the figures are to be read against.
TARGETS = {"tracked": 1.08, "capturing": 1.25, "bytes": 48, "save": 1.5, "restore": 1.5}


def run(args: argparse.Namespace, directory: str) -> None:
    """Prints a report of the parts named in args.only."""
    parts = args.only.split(",")
    print(f"machine: {machine()}")
    print(f"{args.rows} rows, dim {args.dim}, float32, parameter + m + v, {args.threads} op thread(s)", flush=True)
    neighbours = Neighbours()
    tables = AdamTables(args.rows, args.dim)
    tables.attach()
    filled = timed(tables.fill)
    print(f"fill, tracked: CPU {filled.cpu:.1f} s, wall {filled.wall:.1f} s", flush=True)
    full = tables.memory_bytes()
    tables.make_clean(os.path.join(directory, "first"), "base")
    if "step" in parts:
        _step(tables, args, directory)
    if "memory" in parts:
        _memory(tables, full, args, directory)
    if "save" in parts:
        for rows in (args.rows, int(args.rows * args.delta)):
            _save(tables, rows, args, directory)
    if "restore" in parts:
        _restore(tables, args, directory)
    tables.detach()
    print(f"others used {neighbours.share():.0%} of the machine meanwhile; {machine()}")


def _step(tables: AdamTables, args: argparse.Namespace, directory: str) -> None:
    for distribution in ("zipf", "uniform"):
        tables.make_clean(os.path.join(directory, "clean"))
        samples = step_cost.measure(tables, distribution, args.batch, args.step_rounds, directory)
        plain = samples[step_cost.PLAIN]
        per_key = {name: median_cpu(taken) / args.batch * 1e9 for name, taken in samples.items()}
        print(f"step, {distribution}, {args.batch} keys: plain {per_key[step_cost.PLAIN]:.0f}, tracked "
              f"{per_key[step_cost.TRACKED]:.0f}, capturing {per_key[step_cost.CAPTURING]:.0f} ns CPU per key")
        print(f"  noise, plain against plain:       {ratio(samples[step_cost.AGAIN], plain)}")
        print(f"  tracked, target {TARGETS['tracked']}:             {ratio(samples[step_cost.TRACKED], plain)}")
        print(f"  20 % to capture, target {TARGETS['capturing']}:     {ratio(samples[step_cost.CAPTURING], plain)}",
              flush=True)


def _memory(tables: AdamTables, full: int, args: argparse.Namespace, directory: str) -> None:
    """Everything unsaved; clean; a fifth unsaved; a fifth pending and as much unsaved behind it."""
    tables.make_clean(os.path.join(directory, "clean"))
    clean = tables.memory_bytes()
    _touch(tables, args)
    listed = tables.memory_bytes()
    tables.cut("delta", capture_memory_bytes=8 << 30)
    _touch(tables, args)
    two_lists = tables.memory_bytes()
    tables.resolve(committed=False)
    figures = ", ".join(f"{name} {size / args.rows:.1f}" for name, size in
                        (("full", full), ("clean", clean), ("a fifth unsaved", listed), ("two lists", two_lists)))
    print(f"memory of the tracker, bytes per key, target {TARGETS['bytes']}: {figures}", flush=True)


def _touch(tables: AdamTables, args: argparse.Namespace) -> None:
    """Writes a fifth of the rows; removes what a pending cut captures meanwhile."""
    import tensorflow as tf
    size = 1 << 16
    values = tf.zeros([size, args.dim])
    for start in range(0, args.rows // 5, size):
        keys = tf.range(start, min(start + size, args.rows // 5), dtype=tf.int64)
        tables.tracked_insert(keys, values[:keys.shape[0]])


def _save(tables: AdamTables, rows: int, args: argparse.Namespace, directory: str) -> None:
    samples, size = save_cost.measure(tables, rows, args.rounds, directory, args.threads)
    _compare(f"save of {rows} rows, {size / 1e6:.0f} MB, {args.threads} drain thread(s)", samples, save_cost.SAVE,
             save_cost.LEAST, TARGETS["save"], rows)


def _restore(tables: AdamTables, args: argparse.Namespace, directory: str) -> None:
    samples = restore_cost.measure(tables, args.rounds, directory)
    _compare(f"restore of {args.rows} rows", samples, restore_cost.RESTORE, restore_cost.LEAST, TARGETS["restore"],
             args.rows)


def _compare(title: str, samples, case: str, least: str, target: float, rows: int) -> None:
    print(title)
    for name, taken in samples.items():
        print(f"  {name:14s} CPU {median_cpu(taken):7.2f} s, wall {median_wall(taken):7.2f} s, "
              f"{median_cpu(taken) / rows * 1e9:6.0f} ns CPU per row")
    print(f"  {case} against {least}, target {target}: {ratio(samples[case], samples[least])}", flush=True)
