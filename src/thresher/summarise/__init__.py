"""Deprecated: use `thresher.summarize`."""

from thresher.deprecation import ForwardedNames

_CURRENT = {
    "Endpoint": "Endpoint",
    "Extractive": "ExtractiveSummarizer",
    "Judge": "Judge",
    "ModelJudge": "ModelJudge",
    "ModelSummariser": "ModelSummarizer",
    "Summariser": "Summarizer",
    "SummaryError": "SummaryError",
}

__getattr__ = ForwardedNames(__name__, {old: f"thresher.summarize:{new}" for old, new in _CURRENT.items()})
