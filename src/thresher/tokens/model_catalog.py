"""What is known of each model: its window, its prices, its cache, and how its tokens compare with o200k's.

The table is data (`load_models.json`), decoded when first asked for; each row says where it was read and when, and
whether the vendor's own page said all of it. Prices are dollars for a million tokens, for prompts of ordinary length:
the higher rates past 100,000 to 272,000 tokens that some vendors have are not in it. `THRESHER_MODELS` names a JSON or
TOML file with more rows, or others for the same names.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from thresher.errors import ThresherError

MODELS_VARIABLE = "THRESHER_MODELS"


class ModelCatalogError(ThresherError):
    """A file of models cannot be read, or a row in it is wrong."""


class ModelPrice(Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars for a million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    """Into the cache of the shorter life; the price of input where writing costs nothing more."""
    cache_write_1h: float | None = None
    """None: no such tier."""


class ModelInfo(Struct, frozen=True, forbid_unknown_fields=True):
    """One model, or a family whose members differ only in their date."""

    name: str
    vendor: str
    window: int
    """Tokens of prompt and answer together."""
    max_output: int
    price: ModelPrice
    cache_ttl: int = 300
    """Seconds for which the cache keeps a prefix after its last use, at least."""
    cache_minimum: int = 1024
    """Tokens below which no prefix is cached."""
    preserved_thinking: bool = False
    """A thinking block is bound to all that stands before it."""
    factor: float = 1.0
    """Its tokens for one of o200k."""
    media: str = ""
    """The rule by which it weighs pictures; the vendor's own where empty."""
    aliases: tuple[str, ...] = ()
    source: str = ""
    checked: str = ""
    """The day on which the source was read."""
    confirmed: bool = True
    """The vendor's own page gave all the figures; else some come from elsewhere or from an older model."""


def load_models() -> Mapping[str, ModelInfo]:
    """Every known model by its name: the table of the package, and over it the file that THRESHER_MODELS names."""
    return _models(os.environ.get(MODELS_VARIABLE, ""))


def find_model(name: str) -> ModelInfo | None:
    """The model of a name: exact, by an alias, or by the longest known name that it begins with."""
    return _find_model_in(name, os.environ.get(MODELS_VARIABLE, ""))


_NAME_SUFFIX = re.compile(r"(?![-.]\d{1,2}(?!\d))[-_.:@\[]|$")
"""What may follow a known name: a date, a variant; not one more number of the version, which is another model."""


@cache
def _find_model_in(name: str, file: str) -> ModelInfo | None:
    bare = _normalize_name(name)
    known = _index(file)
    if bare in known:
        return known[bare]
    for start in sorted(known, key=len, reverse=True):
        if bare.startswith(start) and _NAME_SUFFIX.match(bare, len(start)):
            return known[start]
    return None


def _normalize_name(name: str) -> str:
    """Without the provider (`anthropic/`, `us.anthropic.`, `models/`), and Claude's versions with dashes for dots."""
    bare = name.strip().lower().rpartition("/")[2]
    bare = re.sub(r"^(?:[a-z]{2,6}\.)?(?:anthropic|openai|google)\.", "", bare)
    return re.sub(r"(?<=\d)\.(?=\d)", "-", bare) if bare.startswith("claude") else bare


@cache
def _index(file: str) -> Mapping[str, ModelInfo]:
    table = _models(file)
    return {alias: model for model in table.values() for alias in model.aliases} | dict(table)


@cache
def _models(file: str) -> Mapping[str, ModelInfo]:
    own = _decoded(Path(__file__).with_name("models.json"))
    return MappingProxyType({model.name: model for model in [*own, *(_decoded(Path(file)) if file else ())]})


def _decoded(path: Path) -> list[ModelInfo]:
    """The rows of a file: a list under `load_models`."""
    try:
        rows = _rows(path)
    except (OSError, ValueError) as error:
        raise ModelCatalogError(f"{path}: cannot be read as models ({error}); {MODELS_VARIABLE} names it") from error
    try:
        return msgspec.convert(rows, list[ModelInfo])
    except msgspec.ValidationError as error:
        raise ModelCatalogError(
            f"{path}: a model is not as it should be: {error}; {MODELS_VARIABLE} names it"
        ) from error


def _rows(path: Path) -> Any:
    if path.suffix == ".toml":
        import tomllib  # noqa: PLC0415 - few have such a file

        table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    else:
        table = msgspec.json.decode(path.read_bytes())
    if not isinstance(table, dict) or not isinstance(table.get("models"), list):
        raise ValueError("it has no list `models`")
    return table["models"]
