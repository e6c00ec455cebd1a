"""How good a policy is, told from recordings and without a model.

In: sessions, and what a policy would have sent for each call. Out: what the calls used (`references`), whether it was
there (`Referee`), and what it cost (`Bill`). No other package imports this one, so nothing can be made to please it.
"""

from thresher.replay.bill import Bill, Charge, Rates, rates_of
from thresher.replay.outcome import Outcome, Referee
from thresher.replay.references import DEFINITION, Index, Needle, references
from thresher.replay.trace import Block, Call, Trace, said, trace_of, traces

__all__ = [
    "DEFINITION",
    "Bill",
    "Block",
    "Call",
    "Charge",
    "Index",
    "Needle",
    "Outcome",
    "Rates",
    "Referee",
    "Trace",
    "rates_of",
    "references",
    "said",
    "trace_of",
    "traces",
]
