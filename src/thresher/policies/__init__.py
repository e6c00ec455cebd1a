"""What to change: policies propose edits, one file each.

In: a history. Out: edits, in the order they are worth making. A policy never builds a history.
"""

from thresher.policies.base import Policy, PolicyLike
from thresher.policies.intent import with_intent, without_intent
from thresher.policies.table import POLICIES, make_policy, policy_class, policy_names

__all__ = [
    "POLICIES",
    "Policy",
    "PolicyLike",
    "make_policy",
    "policy_class",
    "policy_names",
    "with_intent",
    "without_intent",
]
