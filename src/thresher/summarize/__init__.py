"""Summaries that replace many parts of a history.

Input: a history and the places to summarize. Output: one text, extracted from the parts or written by a model.
`find_summary_requests` lists the summaries of a finished plan that a model could improve, and `fill_summaries` puts
improved texts into the plan. Only `http_client` uses the network; it is imported on the first request to a model.
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
