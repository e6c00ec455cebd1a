"""Catalog of models: context window, prices, cache, and token factor relative to o200k.

The catalog is data (`models.json`), decoded on first use. Each row records its source, the date of the check, and
whether the vendor's own page confirms all its values. Prices are dollars per million tokens. Some vendors charge more
for long prompts (depending on the vendor, above 100,000 to 272,000 tokens); the catalog does not include these rates.
`THRESHER_MODELS` names a JSON or TOML file whose rows extend or override the catalog.
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
    """A catalog file cannot be read, or one of its rows is invalid."""


class ModelPrice(Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    """Price of writing to the short-lived cache; the input price if a cache write costs nothing extra."""
    cache_write_1h: float | None = None
    """Price of writing to the one-hour cache; None if the model has no such cache."""


class ModelInfo(Struct, frozen=True, forbid_unknown_fields=True):
    """One model, or a family whose members differ only in their date."""

    name: str
    vendor: str
    window: int
    """Context window: tokens of prompt and answer together."""
    max_output: int
    price: ModelPrice
    cache_ttl: int = 300
    """Minimum seconds that the cache keeps a prefix after its last use."""
    cache_minimum: int = 1024
    """Minimum number of tokens of a cached prefix."""
    preserved_thinking: bool = False
    """True if a thinking block is valid only after an unchanged prefix."""
    factor: float = 1.0
    """Ratio of the model's tokens to o200k tokens."""
    media: str = ""
    """Name of the model's media rule (see `MEDIA_RULES`); empty: the vendor's default."""
    aliases: tuple[str, ...] = ()
    source: str = ""
    checked: str = ""
    """Date when the row was checked against its source."""
    confirmed: bool = True
    """True if the vendor's own page confirms all values; otherwise some come from elsewhere or from an older model."""


def load_models() -> Mapping[str, ModelInfo]:
    """Return every model by name: the built-in catalog, overridden by the file in THRESHER_MODELS."""
    return _load_catalog(os.environ.get(MODELS_VARIABLE, ""))


def find_model(name: str) -> ModelInfo | None:
    """Find a model by its name, by an alias, or by the longest known name that it starts with."""
    return _find_model_in(name, os.environ.get(MODELS_VARIABLE, ""))


_NAME_SUFFIX = re.compile(r"(?![-.]\d{1,2}(?!\d))[-_.:@\[]|$")
"""Allowed suffix of a known name: a date or a variant. Another version number would name a different model."""


@cache
def _find_model_in(name: str, file: str) -> ModelInfo | None:
    bare = _normalize_name(name)
    names = _index_names(file)
    if bare in names:
        return names[bare]
    for prefix in sorted(names, key=len, reverse=True):
        if bare.startswith(prefix) and _NAME_SUFFIX.match(bare, len(prefix)):
            return names[prefix]
    return None


def _normalize_name(name: str) -> str:
    """Remove the provider (`anthropic/`, `us.anthropic.`, `models/`), and write Claude's versions with dashes."""
    bare = name.strip().lower().rpartition("/")[2]
    bare = re.sub(r"^(?:[a-z]{2,6}\.)?(?:anthropic|openai|google)\.", "", bare)
    return re.sub(r"(?<=\d)\.(?=\d)", "-", bare) if bare.startswith("claude") else bare


@cache
def _index_names(file: str) -> Mapping[str, ModelInfo]:
    table = _load_catalog(file)
    return {alias: model for model in table.values() for alias in model.aliases} | dict(table)


@cache
def _load_catalog(file: str) -> Mapping[str, ModelInfo]:
    built_in = _load_file(Path(__file__).with_name("models.json"))
    return MappingProxyType({model.name: model for model in [*built_in, *(_load_file(Path(file)) if file else ())]})


def _load_file(path: Path) -> list[ModelInfo]:
    """Load the rows of a file: the list under `models`."""
    try:
        rows = _decode_rows(path)
    except (OSError, ValueError) as error:
        raise ModelCatalogError(
            f"`{path}` cannot be read as a model catalog: {error}; check the file or {MODELS_VARIABLE}"
        ) from error
    try:
        return msgspec.convert(rows, list[ModelInfo])
    except msgspec.ValidationError as error:
        raise ModelCatalogError(f"`{path}`: invalid model: {error}; check the file or {MODELS_VARIABLE}") from error


def _decode_rows(path: Path) -> Any:
    if path.suffix == ".toml":
        import tomllib  # noqa: PLC0415 - rarely needed

        table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    else:
        table = msgspec.json.decode(path.read_bytes())
    if not isinstance(table, dict) or not isinstance(table.get("models"), list):
        raise ValueError("missing list `models`")
    return table["models"]
