"""What a conversation weighs.

In: parts, messages, histories. Out: numbers of tokens, and what models hold and cost. Knows the model, not the formats.
"""

from thresher.tokens.calibrate import Calibration, calibrate
from thresher.tokens.counter import Counter, counter
from thresher.tokens.models import Model, model_named, models
from thresher.tokens.scale import Scale, count, default_scale, estimate, model_in, scale_for

__all__ = [
    "Calibration",
    "Counter",
    "Model",
    "Scale",
    "calibrate",
    "count",
    "counter",
    "default_scale",
    "estimate",
    "model_in",
    "model_named",
    "models",
    "scale_for",
]
