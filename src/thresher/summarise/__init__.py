"""Short texts that stand for long ones.

In: a history and the places in it that are to go. Out: one text in their stead, from the calls and results
themselves or written by a model. Whoever applies the text decides where it goes; a finished plan tells which of its
texts could be better, and takes them later. Only `calling` speaks to a network; it is imported when a model is asked.
"""

from thresher.summarise.base import Summariser
from thresher.summarise.endpoint import Endpoint, SummaryError
from thresher.summarise.judge import Judge, ModelJudge
from thresher.summarise.ledger import Extractive, extractive
from thresher.summarise.lines import edits_ledger, one_line
from thresher.summarise.open_requests import SummaryRequest, answer, fill, open_requests
from thresher.summarise.written import ModelSummariser

__all__ = [
    "Endpoint",
    "Extractive",
    "Judge",
    "ModelJudge",
    "ModelSummariser",
    "Summariser",
    "SummaryError",
    "SummaryRequest",
    "answer",
    "edits_ledger",
    "extractive",
    "fill",
    "one_line",
    "open_requests",
]
