"""How good a policy is, told from recordings and without a model.

In: sessions, and ways of keeping requests small. Out: what the calls used (`references`), whether it was there
(`Referee`), what it cost (`Bill`), and figures to compare by (`scores`). No policy and no window can read it: only what
shows figures imports this package.
"""

from thresher.replay.bill import Bill, Charge, Rates, rates_of
from thresher.replay.feed import Feed, Piece
from thresher.replay.outcome import Outcome, Referee
from thresher.replay.own import own_way
from thresher.replay.recording import Recording, recorded, recordings
from thresher.replay.references import DEFINITION, Index, Needle, references
from thresher.replay.run import Tally, Way, replay, requests
from thresher.replay.trace import Block, Call, Trace, said, trace_of, traces

__all__ = [
    "DEFINITION",
    "Bill",
    "Block",
    "Call",
    "Charge",
    "Feed",
    "Index",
    "Needle",
    "Outcome",
    "Piece",
    "Rates",
    "Recording",
    "Referee",
    "Tally",
    "Trace",
    "Way",
    "own_way",
    "rates_of",
    "recorded",
    "recordings",
    "references",
    "replay",
    "requests",
    "said",
    "trace_of",
    "traces",
]
