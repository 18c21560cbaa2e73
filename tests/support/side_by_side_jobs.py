"""Jobs of the tests of `benchmarks/side_by_side`, each in a process of its own (`run_job`)."""

from __future__ import annotations

import os

import numpy as np

from benchmarks.side_by_side import stock

ROWS = 3000


def stock_savers():
    """Saves by TFRA and by TensorFlow, in processes that know nothing of tfadaptcp, and loads."""
    stock.leave_tfra_alone()
    stock.fix_several_workers()
    import tensorflow as tf

    from benchmarks.side_by_side import job, systems
    from benchmarks.side_by_side.capped import build, control

    library, page, store = str(build.build()), os.environ["STORE"] + "/caps", os.environ["STORE"] + "/objects"
    os.environ[control.VARIABLE] = page
    caps = control.Control(page)
    build.load(library)
    found = {}
    with job.start_cluster(2, library, page, is_stock=True) as cluster:
        work = job.Job(cluster, job.build(cluster, ROWS), ROWS)
        work.fill()
        work.train(10)
        for name in ("tfra_files", "tf_checkpoint"):
            saver = systems.SYSTEMS[name].make(work, f"capped://{store}/{name}", "wait")
            work.train(2)
            before = caps.counters()
            caps.forget_maxima()
            caps.cap(each=200_000)  # slow enough for connections to meet
            for _ in range(2):
                saver.save()
            saver.finish()
            moved = control.moved(before, caps.counters())
            caps.cap()
            copies = [_copy(table) for table in work.tables]
            for table in work.tables:
                table.clear()
            weights = [variable.numpy() for variable in work.model.layers[-1].weights]
            for variable in work.model.layers[-1].weights:
                variable.assign(0 * variable)
            saver.load(f"capped://{store}/{name}/2")
            found[name] = {
                "rows": [len(copy[0]) for copy in copies],
                "equal": [all(np.array_equal(a, b) for a, b in zip(copy, _copy(table)))
                          for copy, table in zip(copies, work.tables)],
                "weights": [np.array_equal(variable.numpy(), weight)
                            for variable, weight in zip(work.model.layers[-1].weights, weights)],
                "kept": tf.io.gfile.listdir(f"capped://{store}/{name}"), "bytes": moved["bytes_written"],
                "connections": moved["open_most"],
                "stats": saver.stats()}
        stamps = work.take_stamps()
        graph = work._function.get_concrete_function().graph.as_graph_def()
        names = {node.op for nodes in (graph.node, *(function.node_def for function in graph.library.function))
                 for node in nodes}
    return {**found, "ops": sorted(op for op in names if "Cuckoo" in op),
            "workers": sorted({stamp[0] for stamp in stamps}), "steps": len(stamps),
            "forward": all(began < ended for _, began, ended in stamps)}


def _copy(table):
    keys, values = table.export()
    keys, values = keys.numpy(), values.numpy()
    order = np.argsort(keys)
    return keys[order], values[order]
