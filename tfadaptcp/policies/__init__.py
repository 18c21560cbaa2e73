"""Policies: which rows are hot, and when a new base is due. Pure numbers, no TensorFlow."""

import re
from typing import Callable, Dict, Optional, Union

from tfadaptcp.policies.adaptive import Adaptive
from tfadaptcp.policies.base import ALL_HOT, NONE_HOT, Estimation, PHistogram, Policy, PolicyStats
from tfadaptcp.policies.check_n_run import CheckNRun
from tfadaptcp.policies.incr_ckpt import IncrCkpt
from tfadaptcp.policies.simple import Differential, Full, Incremental

__all__ = ["ALL_HOT", "NONE_HOT", "Adaptive", "CheckNRun", "Differential", "Estimation", "Full", "IncrCkpt", "Incremental",
           "PHistogram", "Policy", "PolicyStats", "get"]

_BY_NAME: Dict[str, Callable[[], Policy]] = {
    **{policy.name: policy for policy in (Adaptive, CheckNRun, Differential, Full, Incremental)},
    IncrCkpt().name: IncrCkpt}
_INCR_CKPT_N = re.compile(r"incr_ckpt_([1-9][0-9]*)")


def get(policy: Union[str, Policy]) -> Policy:
    """Returns the policy of that name with its defaults, or the policy itself.

    Raises:
        ValueError: no policy has that name, or the argument is neither a name nor a policy.
    """
    named = _by_name(policy) if isinstance(policy, str) else None
    if named is not None:
        return named
    if isinstance(policy, Policy) and not isinstance(policy, type) and isinstance(policy.name, str) and policy.name:
        return policy
    raise ValueError(f"policy: Received: {policy!r}. Expected: a Policy, or one of "
                     f"{sorted([*_BY_NAME, 'incr_ckpt_<N>'])}")


def _by_name(name: str) -> Optional[Policy]:
    every = _INCR_CKPT_N.fullmatch(name)
    if every is not None:
        return IncrCkpt(full_every=int(every[1]))
    return _BY_NAME[name]() if name in _BY_NAME else None
