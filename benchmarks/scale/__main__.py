"""Measures what a job of another size follows from, and reckons with it: 10^10 keys on 100 parameter servers, for one.

    python -m benchmarks.scale                              # measures all, 5 minutes, 4 GB; prints tables
    python -m benchmarks.scale --docs docs/scale.md         # and writes them into the document
    python -m benchmarks.scale --measure none --keys 1e9    # reckons again with what was measured before
    python -m benchmarks.scale --measure fan_out --ps-processes 1 2 4
"""

import argparse
import dataclasses
import os
import pathlib
from typing import Callable, Dict

from benchmarks.scale import inputs
from benchmarks.scale.setting import Setting

_DEFAULT = Setting()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--measure", nargs="+", default=["all"], choices=("all", "none", "rows", "growth", "manifests",
                                                                        "requests", "fan_out"))
    parser.add_argument("--quick", action="store_true", help="everything tiny: to see that it runs")
    parser.add_argument("--ps-processes", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="clusters to measure")
    parser.add_argument("--inputs", type=pathlib.Path, default=pathlib.Path(".cache/scale/inputs.json"),
                        help="where what was measured is kept")
    parser.add_argument("--docs", type=pathlib.Path, default=None, help="a document whose generated section is replaced")
    for field in dataclasses.fields(Setting):
        if field.name not in ("at_once", "segment_bytes", "replication"):
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(getattr(_DEFAULT, field.name))
                                if field.type is int else float, default=getattr(_DEFAULT, field.name))
    args = parser.parse_args()
    for name, value in {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TF_USE_LEGACY_KERAS": "1"}.items():
        os.environ.setdefault(name, value)
    setting = Setting(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Setting)
                         if hasattr(args, field.name)})
    measures = _measures(setting, args)
    for name in measures if "all" in args.measure else [name for name in args.measure if name != "none"]:
        print(f"==> {name}", flush=True)
        inputs.write(measures[name](), args.inputs)
    from benchmarks.scale import report
    report.write(setting, inputs.read(args.inputs), args.quick, args.docs)


def _measures(setting: Setting, args: argparse.Namespace) -> Dict[str, Callable[[], inputs.Inputs]]:
    from benchmarks.scale import fan_out, manifests, requests, rows
    if args.quick:
        return {"rows": lambda: rows.measure(4096, 8, 1), "growth": lambda: rows.measure_growth(200_000, 50_000),
                "manifests": lambda: manifests.measure(500, 100),
                "fan_out": lambda: fan_out.measure(args.ps_processes, 1)}
    # The same fill of the tables, which have room for a power of two.
    found = {"rows": lambda: rows.measure(round(setting.keys / setting.ps / 64), setting.dim, 3),
             "growth": lambda: rows.measure_growth(16_000_000),
             "manifests": lambda: manifests.measure(30_000, setting.ps),
             "fan_out": lambda: fan_out.measure(args.ps_processes, 9)}
    if requests.is_possible():
        found["requests"] = requests.measure
    return found


if __name__ == "__main__":
    main()
