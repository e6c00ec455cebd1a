"""Token counts of parts, messages and histories, and the catalog of models and prices.

This package imports `model`, and `dialects` for the token overhead of each API. It does not know transcript formats.
"""

from typing import TYPE_CHECKING

from thresher.deprecation import ForwardedNames
from thresher.tokens.calibrate import Calibration, calibrate
from thresher.tokens.counter import CounterError, TokenCounter, get_counter
from thresher.tokens.model_catalog import ModelCatalogError, ModelInfo, find_model, load_models
from thresher.tokens.weights import (
    TokenWeights,
    count,
    default_token_weights,
    estimate_part_tokens,
    find_model_name,
    token_weights_for,
)

__all__ = [
    "Calibration",
    "CounterError",
    "ModelCatalogError",
    "ModelInfo",
    "TokenCounter",
    "TokenWeights",
    "calibrate",
    "count",
    "default_token_weights",
    "estimate_part_tokens",
    "find_model",
    "find_model_name",
    "get_counter",
    "load_models",
    "token_weights_for",
]

if not TYPE_CHECKING:  # hides the old names from type checkers
    __getattr__ = ForwardedNames(
        __name__,
        {
            "Counter": "thresher.tokens:TokenCounter",
            "Model": "thresher.tokens:ModelInfo",
            "Scale": "thresher.tokens:TokenWeights",
            "default_scale": "thresher.tokens:default_token_weights",
            "model_in": "thresher.tokens:find_model_name",
            "model_named": "thresher.tokens:find_model",
            "models": "thresher.tokens:load_models",
            "scale_for": "thresher.tokens:token_weights_for",
        },
    )
