"""Every kind of secret in every place: almost all are redacted, and the documentation names the others."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest
from secret_kinds import KINDS, make_secret

from thresher.memory.ingest.redaction import redact

SEEDS = range(3)


def _camel(name: str) -> str:
    first, *rest = name.lower().split("_")
    return first + "".join(map(str.capitalize, rest))


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _option(name: str) -> str:
    return name.lower().replace("_", "-")


def _basic(value: str) -> str:
    return base64.b64encode(f"deploy:{value}".encode()).decode()


CONTEXTS: dict[str, Callable[[str, str], str]] = {
    "option": lambda name, value: f"$ deploy --{_option(name)} {value} --verbose",
    "option with =": lambda name, value: f"deploy --region eu --{_option(name)}={value}",
    "argument list": lambda name, value: json.dumps(["deploy", f"--{_option(name)}", value, "--verbose"]),
    "curl -u": lambda _, value: f"curl -s -u deploy:{value} https://api.internal/v1/items",
    "mysql -p": lambda _, value: f"mysql -h db.internal -u app -p{value} shop",
    ".env": lambda name, value: f"DEBUG=1\n{name}={value}\nPORT=80\n",
    "quoted .env": lambda name, value: f'{name}="{value}"\n',
    "export": lambda name, value: f"export {name}='{value}' && make deploy",
    "docker -e": lambda name, value: f"docker run --rm -e {name}={value} -p 80:80 shop",
    "JSON": lambda name, value: json.dumps({"region": "eu", name.lower(): value}),
    "JSON in camel case": lambda name, value: json.dumps({_camel(name): value}, indent=2),
    "JSON in JSON": lambda name, value: json.dumps({"body": json.dumps({name.lower(): value, "page": 1})}),
    "YAML": lambda name, value: f"service:\n  {name.lower()}: {value}\n  port: 80\n",
    "TOML": lambda name, value: f'[service]\n{name.lower()} = "{value}"\n',
    "aligned TOML": lambda name, value: f'region            = "eu"\n{name.lower()}      = "{value}"\n',
    "list in JSON": lambda name, value: json.dumps([{"name": "PORT", "value": "80"}, {"name": name, "value": value}]),
    "list in escaped JSON": lambda name, value: json.dumps(json.dumps([{"name": name, "value": value}])),
    "list in YAML": lambda name, value: f'env:\n  - name: {name}\n    value: "{value}"\n',
    "properties": lambda name, value: f"service.{_option(name)}={value}\n",
    "Python argument": lambda name, value: f"client = Client(region='eu', {name.lower()}={value!r})",
    "Python environment": lambda name, value: f'os.environ["{name}"] = "{value}"',
    "JavaScript": lambda name, value: f"const options = {{ {_camel(name)}: '{value}', retries: 3 }};",
    "XML element": lambda name, value: f"<service><{_camel(name)}>{escape(value)}</{_camel(name)}></service>",
    "XML attribute": lambda name, value: f'<add key="{_camel(name)}" value="{escape(value)}" />',
    "header": lambda name, value: f"> X-{_option(name).title()}: {value}\n> Accept: */*",
    "Authorization: Bearer": lambda _, value: f"curl -H 'Authorization: Bearer {value}' https://api.internal",
    "Authorization: Basic": lambda _, value: f"Authorization: Basic {_basic(value)}\n",
    "cookie": lambda _, value: f"Cookie: theme=dark; session={quote(value, safe='')}; lang=en\n",
    "URL with credentials": lambda _, value: f"git clone https://deploy:{quote(value, safe='')}@git.internal/shop.git",
    "URL query": lambda name, value: f"GET https://api.internal/items?{name.lower()}={quote(value, safe='')}&page=2",
    "netrc": lambda _, value: f"machine git.internal login deploy password {value}\n",
    "Markdown table": lambda name, value: f"| setting | value |\n|---|---|\n| {name} | `{value}` |\n",
    "log line": lambda name, value: f"2026-03-01 12:00:01 INFO [main] using {name.lower()}={value} for shop",
    "words": lambda name, value: f"Here it is. {_words(name)}: {value}",
}
KNOWN_LEAKS = {
    ("AWS Bedrock key", "URL query"),
    ("Hugging Face token", "mysql -p"),
    ("age key", "mysql -p"),
    ("password", "Authorization: Bearer"),
    ("password", "cookie"),
    ("short password", "Authorization: Bearer"),
    ("short password", "cookie"),
}
"""Cells that leak; the documentation names each."""
DOCUMENTATION = Path(__file__).parents[2] / "docs/explanation/search.md"


def _shown(secret: str) -> list[str]:
    """Return the pieces of a secret of which none may be left."""
    body = secret.rsplit("-----\n", 1)[-1].replace("\n", "")
    size = min(len(body), 12)
    return [body[start : start + size] for start in range(0, len(body) - size + 1, size)]


def _leaks(kind: str, context: str) -> bool:
    name = KINDS[kind][0]
    for seed in SEEDS:
        secret = make_secret(kind, seed)
        clean = redact(CONTEXTS[context](name, secret))
        pieces = [*_shown(secret), *_shown(quote(secret, safe="")), _basic(secret)]
        if any(piece in clean for piece in pieces):
            return True
    return False


def test_the_matrix_is_large_enough() -> None:
    assert len(KINDS) >= 70
    assert len(CONTEXTS) >= 27


def test_almost_no_kind_of_secret_leaks_in_any_place() -> None:
    leaks = {(kind, context) for kind in KINDS for context in CONTEXTS if _leaks(kind, context)}
    assert leaks == KNOWN_LEAKS
    assert len(leaks) <= 0.02 * len(KINDS) * len(CONTEXTS)


def test_the_documentation_names_each_leak() -> None:
    text = DOCUMENTATION.read_text(encoding="utf-8")
    missing = [cell for cell in sorted(KNOWN_LEAKS) if f"| {cell[0]} | `{cell[1]}` |" not in text]
    assert missing == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.endswith("private key")])
def test_text_around_a_secret_stays(kind: str) -> None:
    clean = redact(CONTEXTS["log line"](KINDS[kind][0], make_secret(kind, 1)))
    assert clean.startswith("2026-03-01 12:00:01 INFO [main] using ")
    assert clean.endswith("] for shop")
