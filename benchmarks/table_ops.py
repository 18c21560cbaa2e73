"""Benchmarks of the table ops: tracking, the tracker's memory, saving and restoring, beside plain TFRA.

    python -m benchmarks.table_ops [--rows 10000000] [--only step,memory,save,restore] ...

Ratios are medians over interleaved rounds. Judge by CPU time where others use the machine too.
"""

import argparse
import os
import shutil
import tempfile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows per table; there are three")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1 << 16, help="keys of a step")
    parser.add_argument("--step-rounds", type=int, default=31)
    parser.add_argument("--rounds", type=int, default=5, help="of saves and restores")
    parser.add_argument("--delta", type=float, default=0.2, help="part of the rows in the delta that is saved")
    parser.add_argument("--threads", type=int, default=1,
                        help="of TensorFlow's op pool, and of the drain; with 1, CPU and wall time agree when idle")
    parser.add_argument("--directory", default="/dev/shm" if os.path.isdir("/dev/shm") else None,
                        help="where segments go; needs 210 bytes per row at dim 16")
    parser.add_argument("--only", default="step,memory,save,restore", help="parts to run")
    args = parser.parse_args()

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    # Late: the variables above count at import.
    import tfadaptcp  # noqa: F401 (before TensorFlow, for Keras 2)
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    from benchmarks import report
    directory = tempfile.mkdtemp(prefix="tfadaptcp-benchmark-", dir=args.directory)
    try:
        report.run(args, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
