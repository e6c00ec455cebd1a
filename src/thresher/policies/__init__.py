"""Policies: each proposes edits to a history, one module per policy.

Input: a history. Output: edits, most useful first. A policy never builds a history.
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
