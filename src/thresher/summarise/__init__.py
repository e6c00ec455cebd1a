"""Short texts that stand for long ones.

In: a history and the places in it that are to go. Out: one text in their stead. Imports `model`; whoever applies
the text decides where it goes.
"""

from thresher.summarise.base import Summariser
from thresher.summarise.ledger import Extractive, extractive
from thresher.summarise.lines import edits_ledger, one_line

__all__ = ["Extractive", "Summariser", "edits_ledger", "extractive", "one_line"]
