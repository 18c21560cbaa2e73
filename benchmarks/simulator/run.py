"""Many policies on one trace, in one pass over it."""

from typing import Dict, Mapping, Optional, Tuple

import numpy as np

from benchmarks.simulator.replay import HotRule, Replay, Result
from benchmarks.simulator.tracker import Tracker
from tfadaptcp.policies import Adaptive, Policy

# A policy, and the estimator it sees p by.
Subject = Tuple[Policy, str]


def adaptive(estimator: str = "updates", **options) -> Subject:
    """Returns Adaptive with these options, by one of `tracker.ESTIMATORS`."""
    return Adaptive(estimator="accesses" if estimator == "accesses" else "updates", **options), estimator


def run(trace, subjects: Mapping[str, Subject], rules: Optional[Mapping[str, HotRule]] = None) -> Dict[str, Result]:
    """Replays a trace under each of the policies; `rules` replace the thresholds of some."""
    rules = rules or {}
    trackers: Dict[Tuple[str, float], Tracker] = {}
    replays: Dict[str, Replay] = {}
    start = trace.rows if trace.prefilled else 0
    for name, (policy, estimator) in subjects.items():
        key = (estimator, getattr(policy, "decay", 0.9))
        if key not in trackers:
            trackers[key] = Tracker(trace.rows, *key)
        replays[name] = Replay(policy, trackers[key], start, hot_rule=rules.get(name))
    seen = np.ones(trace.rows, bool) if trace.prefilled else np.zeros(trace.rows, bool)
    live = start
    for n, interval in enumerate(trace, 1):
        if live < trace.rows:
            live += int(np.count_nonzero(~seen[interval.rows]))
            seen[interval.rows] = True
        for tracker in trackers.values():
            tracker.update(n, interval)
        for name, replay in replays.items():
            rule = rules.get(name)
            if hasattr(rule, "update"):
                rule.update(n, interval)
            replay.checkpoint(n, interval.rows, live)
    return {name: replay.result for name, replay in replays.items()}
