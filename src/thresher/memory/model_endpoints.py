"""Settings of the models that the memory may use, and the cap on what they cost.

The settings are a table of `thresher.toml` in the data folder, and environment variables. The `thresher.toml` of a
working directory cannot configure an endpoint: a cloned repository could then send the sessions of all projects to its
server.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct, ValidationError, convert

from thresher.errors import OptionError, suggest_name
from thresher.model.jsontext import dump_json, load_json
from thresher.store.home import create_private_folder, get_data_folder, write_private_file
from thresher.tokens.model_catalog import find_model

if TYPE_CHECKING:
    from thresher.summarize.endpoint import Endpoint

SETTINGS_FILE_NAME = "thresher.toml"
ENVIRONMENT_PREFIX = "THRESHER_"
MILLION = 1_000_000


class SpendingCapError(Exception):
    """A request would exceed the spending cap. The message says how to raise it."""


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model and its server; without `url` and `model`, no model is used."""

    url: str = ""
    model: str = ""
    api: Literal["openai", "anthropic"] = "openai"
    key_variable: str | None = None
    """Environment variable with the key; None: the API's usual one; empty: send no key."""
    price: float | None = None
    """Dollars per million input tokens; None: the catalog's price, or 0 for a server on this machine."""
    output_price: float | None = None
    """Dollars per million output tokens; None: like `price`."""
    max_cost: float = 1.0
    """Spending cap in dollars, for all requests to this model, in all runs."""
    timeout: float = 60.0
    retries: int = 4

    def __post_init__(self) -> None:
        for name in ("price", "output_price", "max_cost", "timeout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"`{name}` must be 0 or more, got {value!r}")

    @property
    def is_configured(self) -> bool:
        """True if a model may be used."""
        return bool(self.url and self.model)


class MeaningSettings(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the search by meaning, with the embedding model if one is configured."""

    enabled: bool = True
    """False to search by words only and to build no vectors."""
    batch: int = 64
    """Number of texts in one request."""


class AnnotationSettings(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `thresher annotate`."""


SettingsT = TypeVar("SettingsT", bound=ModelSettings)


def load_model_settings(
    kind: type[SettingsT], table: str, *, home: Path | None = None, environment: Mapping[str, str] | None = None
) -> SettingsT:
    """Load a table of `thresher.toml` in the data folder; `THRESHER_<TABLE>_<NAME>` overrides each value."""
    file = (home or get_data_folder()) / SETTINGS_FILE_NAME
    values = _read_table(file, table)
    origin = {name: f"`{file}`: {table}.{name}" for name in values}
    prefix = f"{ENVIRONMENT_PREFIX}{table.upper()}_"
    for variable, value in (os.environ if environment is None else environment).items():
        if variable.startswith(prefix) and value.strip():
            name = variable.removeprefix(prefix).lower()
            values[name], origin[name] = value.strip(), f"`{variable}`"
    for name, value in values.items():
        if name not in kind.__struct_fields__:
            hint = suggest_name(name, kind.__struct_fields__)
            raise OptionError(f"{origin[name]}: unknown option.{hint} Valid: {', '.join(kind.__struct_fields__)}")
        if isinstance(value, str) and value.lower() in ("true", "false"):
            values[name] = value.lower()
        try:
            convert({name: values[name]}, kind, strict=False)
        except ValidationError as error:
            raise OptionError(f"{origin[name]}: {error}") from None
    settings = convert(values, kind, strict=False)
    if bool(settings.url) != bool(settings.model):
        missing = "model" if settings.url else "url"
        raise OptionError(f"`{file}`, {prefix}*: `{table}` lacks a `{missing}`; set both, or neither")
    return settings


def _read_table(file: Path, table: str) -> dict[str, Any]:
    if not file.is_file():
        return {}
    import tomllib  # noqa: PLC0415 - only if the file exists

    try:
        value = tomllib.loads(file.read_text("utf-8")).get(table, {})
    except (OSError, ValueError) as error:
        raise OptionError(f"cannot read `{file}`: {error}") from error
    if not isinstance(value, dict):
        raise OptionError(f"`{file}`: `{table}` must be a table, got {value!r}")
    return dict(value)


def make_endpoint(settings: ModelSettings) -> "Endpoint":
    """Return the endpoint of configured settings; raise `OptionError` if they are invalid."""
    from thresher.summarize.endpoint import Endpoint  # noqa: PLC0415 - only with a model

    return Endpoint(
        settings.url,
        settings.model,
        api=settings.api,
        key_variable=settings.key_variable,
        timeout=settings.timeout,
        retries=settings.retries,
    )


class Spending:
    """Prices of a model, and the cap on its cost. The total is stored, so the cap covers all runs."""

    def __init__(self, settings: ModelSettings, ledger: Path) -> None:
        """Look up the price; raise `OptionError` if it is unknown. `ledger` is the file with the totals."""
        self.cap = settings.max_cost
        self._ledger, self._name = ledger, f"{settings.model} {make_endpoint(settings).host}"
        known = find_model(settings.model)
        price, output = settings.price, settings.output_price
        if price is None and known is not None:
            price, output = known.price.input, known.price.output if output is None else output
        if price is None and make_endpoint(settings).is_local:
            price = 0.0
        if price is None:
            raise OptionError(
                f"the price of `{settings.model}` is unknown: set `price`, the dollars per million tokens (0: free)"
            )
        self.price, self.output_price = price, price if output is None else output

    @property
    def spent(self) -> float:
        """Dollars spent so far, in all runs."""
        return float(self._read().get(self._name, 0.0))

    def cost(self, tokens: int, output_tokens: int = 0) -> float:
        """Return the price of a request in dollars."""
        return (tokens * self.price + output_tokens * self.output_price) / MILLION

    def require(self, cost: float) -> None:
        """Raise `SpendingCapError` if a request of this price would exceed the cap."""
        if cost > 0 and (spent := self.spent) + cost > self.cap:
            raise SpendingCapError(
                f"the next request would exceed the spending cap of ${self.cap:.2f} (${spent:.2f} spent); "
                "raise `max_cost` to continue"
            )

    def add(self, cost: float) -> None:
        """Add the price of a request to the total."""
        if cost > 0:
            totals = self._read()
            totals[self._name] = totals.get(self._name, 0.0) + cost
            create_private_folder(self._ledger.parent)
            write_private_file(self._ledger, dump_json(totals).encode())

    def _read(self) -> dict[str, float]:
        """Read all totals. An unreadable file stops the spending, since the cap would otherwise start again at zero."""
        if not self._ledger.exists():
            return {}
        try:
            return convert(load_json(self._ledger.read_bytes()), dict[str, float])
        except (OSError, ValueError, ValidationError) as error:
            raise OptionError(f"`{self._ledger}` is unreadable ({error}); delete it to start again at $0") from None
