"""Policies: which rows are hot, and when a new base is due. Pure numbers, no TensorFlow."""

from typing import Callable, Dict, Union

from tfadaptcp.policies.adaptive import Adaptive
from tfadaptcp.policies.base import ALL_HOT, NONE_HOT, Estimation, PHistogram, Policy, PolicyStats
from tfadaptcp.policies.simple import Differential, Full, Incremental

__all__ = ["ALL_HOT", "NONE_HOT", "Adaptive", "Differential", "Estimation", "Full", "Incremental", "PHistogram", "Policy",
           "PolicyStats", "get"]

_BY_NAME: Dict[str, Callable[[], Policy]] = {
    policy.name: policy for policy in (Adaptive, Differential, Full, Incremental)}


def get(policy: Union[str, Policy]) -> Policy:
    """Returns the policy of that name with its defaults, or the policy itself.

    Raises:
        ValueError: no policy has that name, or the argument is neither a name nor a policy.
    """
    if isinstance(policy, str) and policy in _BY_NAME:
        return _BY_NAME[policy]()
    if isinstance(policy, Policy) and not isinstance(policy, type):
        return policy
    raise ValueError(f"policy: Received: {policy!r}. Expected: a Policy, or one of {sorted(_BY_NAME)}")
