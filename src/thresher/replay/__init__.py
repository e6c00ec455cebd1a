"""Counterfactual replay: measure policies on recorded sessions, without calling a model.

The input is sessions and strategies. The output is the references of each call (`find_references`), whether each
request still contained them (`ResidencyChecker`), the cost (`CostMeter`) and comparable figures (`scores`). Policies
and windows must not depend on this package; only code that reports figures imports it.
"""

from typing import TYPE_CHECKING

from thresher.deprecation import ForwardedNames
from thresher.replay.conversation import ReplayConversation, RequestPiece
from thresher.replay.cost import CostMeter, Rates, RequestCost, rates_for_model
from thresher.replay.recording import Recording, build_recording, build_session_recordings
from thresher.replay.references import REFERENCE_DEFINITION, Reference, ReferenceIndex, find_references
from thresher.replay.residency import CallResidency, ResidencyChecker
from thresher.replay.simulate import ReplayTotals, Strategy, replay_recording, replay_requests
from thresher.replay.strategies.window import window_strategy
from thresher.replay.trace import RecordedCall, Trace, TraceBlock, list_request_texts, trace_history, trace_session

__all__ = [
    "REFERENCE_DEFINITION",
    "CallResidency",
    "CostMeter",
    "Rates",
    "RecordedCall",
    "Recording",
    "Reference",
    "ReferenceIndex",
    "ReplayConversation",
    "ReplayTotals",
    "RequestCost",
    "RequestPiece",
    "ResidencyChecker",
    "Strategy",
    "Trace",
    "TraceBlock",
    "build_recording",
    "build_session_recordings",
    "find_references",
    "list_request_texts",
    "rates_for_model",
    "replay_recording",
    "replay_requests",
    "trace_history",
    "trace_session",
    "window_strategy",
]

if not TYPE_CHECKING:  # a type checker must not accept unknown names
    __getattr__ = ForwardedNames(
        __name__,
        {
            "Referee": "thresher.replay:ResidencyChecker",
            "Way": "thresher.replay:Strategy",
            "recorded": "thresher.replay:build_recording",
            "requests": "thresher.replay:replay_requests",
            "replay": "thresher.replay:replay_recording",
            "own_way": "thresher.replay:window_strategy",
        },
    )
