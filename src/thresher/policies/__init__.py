"""Policies, one module for each: a policy proposes edits to a history.

Input: a history. Output: edits, in the order in which to apply them. A policy never builds a history.
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
