"""Short texts that stand for long ones.

In: a history and the places in it that are to go. Out: one text in their stead, from the calls and results
themselves or written by a model. Whoever applies the text decides where it goes; a finished plan tells which of its
texts could be better, and takes them later. Only `calling` speaks to a network; it is imported when a model is asked.
"""

from thresher.model.one_liners import describe_chain, format_edit_list
from thresher.summarize.base import Summarizer
from thresher.summarize.endpoint import Endpoint, SummaryError
from thresher.summarize.extractive import ExtractiveSummarizer, extractive_summarizer
from thresher.summarize.judge import Judge, ModelJudge
from thresher.summarize.model_summary import ModelSummarizer
from thresher.summarize.pending import SummaryRequest, fill_summaries, find_summary_requests, write_summaries

__all__ = [
    "Endpoint",
    "ExtractiveSummarizer",
    "Judge",
    "ModelJudge",
    "ModelSummarizer",
    "Summarizer",
    "SummaryError",
    "SummaryRequest",
    "describe_chain",
    "extractive_summarizer",
    "fill_summaries",
    "find_summary_requests",
    "format_edit_list",
    "write_summaries",
]
