"""Tests of redaction. The secrets are assembled here, so that no scanner reports them."""

import base64
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from re import _parser as sre_parse  # type: ignore[attr-defined]
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher import read_all
from thresher.errors import UnknownFormatError
from thresher.memory.ingest import redaction
from thresher.memory.ingest.redaction import redact, redact_and_count
from thresher.memory.ingest.secret_names import is_secret_name

MIXED = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6" * 8
HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9" * 8
UPPER = "ABCDEFGH234567JKLMNPQRST"
LOWER = "abcdefghijklmnopqrstuvwxyz"
BEGIN, END = "-----BEGIN " + "RSA PRIVATE KEY-----", "-----END " + "RSA PRIVATE KEY-----"
LINES = [MIXED[start : start + 64] for start in range(0, 256, 64)] + ["Zm9vYmFy" + "=="]

TOKENS = [
    ("aws-access-key", "AKIA" + UPPER[:16]),
    ("aws-access-key", "ASIA" + UPPER[4:20]),
    *(("github-token", prefix + "a1B2" * 9) for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    ("github-token", "github_pat_" + MIXED[:22] + "_" + MIXED[:59]),
    ("gitlab-token", "glpat-" + MIXED[:12] + "-" + MIXED[:7]),
    ("gitlab-token", "glptt-" + HEX[:40]),
    ("gitlab-token", "glcbt-" + "64_" + MIXED[:20]),
    ("slack-token", "xoxb-" + "123456789012-123456789013-" + MIXED[:24]),
    ("slack-token", "xapp-" + "1-A012BCDEF3G-1234567890123-" + HEX[:64]),
    ("slack-webhook", "https://hooks.slack" + ".com/services/T01ABCDEF/B01ABCDEF/" + MIXED[:24]),
    ("stripe-key", "sk_live_" + MIXED[:24]),
    ("stripe-key", "rk_test_" + MIXED[:24]),
    ("anthropic-key", "sk-ant-" + "api03-" + MIXED[:60] + "-_" + MIXED[:31] + "AA"),
    ("openai-key", "sk-" + MIXED[:20] + "T3Blbk" + "FJ" + MIXED[:20]),
    ("openai-key", "sk-proj-" + MIXED[:30] + "-" + MIXED[:43] + "T3Blbk" + "FJ" + MIXED[:74]),
    ("openai-key", "sk-svcacct-" + MIXED[:58] + "T3Blbk" + "FJ" + MIXED[:58]),
    ("google-api-key", "AIza" + "Sy" + MIXED[:33]),
    ("google-oauth", "GOCSPX-" + MIXED[:28]),
    ("google-oauth", "ya29." + MIXED[:80]),
    ("npm-token", "npm_" + MIXED[:36]),
    ("pypi-token", "pypi-" + "AgEIcHlwaS5vcmc" + MIXED[:120]),
    ("huggingface-token", "hf_" + (LOWER + LOWER.upper())[10:44]),
    ("sendgrid-key", "SG." + MIXED[:22] + "." + MIXED[:43]),
    ("telegram-token", "123456789:" + "AA" + MIXED[:33]),
    ("discord-token", "MT" + MIXED[:22] + "." + "GaB1cd" + "." + MIXED[:38]),
    ("discord-token", "MT" + MIXED[:24] + "." + "GaB1cd" + "." + MIXED[:38]),
    ("discord-webhook", "https://discord" + ".com/api/webhooks/123456789012345678/" + MIXED[:68]),
    ("digitalocean-token", "dop_v1_" + HEX[:64]),
    ("azure-secret", "abc8Q~" + MIXED[:34]),
    ("heroku-key", "HRKU-" + "AA" + MIXED[:58]),
    ("linear-key", "lin_api_" + MIXED[:40]),
    ("notion-token", "ntn_" + "12345678901" + MIXED[:35]),
    ("notion-token", "secret_" + MIXED[:43]),
    ("sentry-token", "sntryu_" + HEX[:64]),
    ("shopify-token", "shpat_" + HEX[:32]),
    ("square-token", "sq0atp-" + MIXED[:22]),
    ("square-token", "EAAA" + MIXED[:60]),
    ("supabase-key", "sbp_" + HEX[:40]),
    ("vercel-token", "vcp_" + MIXED[:52]),
    ("groq-key", "gsk_" + MIXED[:52]),
    ("vault-token", "hvs." + MIXED[:95]),
    ("jwt", "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0" + "." + MIXED[:43]),
    ("private-key", "\n".join([BEGIN, *LINES, END])),
    ("private-key", "\\n".join([BEGIN, *LINES, END])),
    ("private-key", "\n".join([BEGIN, "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,0A1B", "", *LINES, END])),
    ("private-key", "\n".join([BEGIN, *LINES])),
    ("private-key", "\n".join(f"  {number}→{line}" for number, line in enumerate([BEGIN, *LINES, END])).lstrip(" 0→")),
]


@pytest.mark.parametrize(
    "around", [("", ""), ("use ", " now"), ('{"k": "', '"}'), ("(", ")."), ("→", "←"), ("`", "`,")]
)
@pytest.mark.parametrize(("kind", "token"), TOKENS)
def test_provider_tokens_are_redacted_by_pattern(kind: str, token: str, around: tuple[str, str]) -> None:
    before, after = around
    assert redact_and_count(before + token + after) == (f"{before}[redacted {kind}]{after}", 1)


VALUE = "q7" + "Zp3kX9" + "vL2mT8wB"


@pytest.mark.parametrize(
    ("before", "kind", "after"),
    [
        ("password=", "password", ""),
        ("DB_PASSWORD=", "password", "\nnext"),
        ('"passwd": "', "password", '",'),
        ("pwd: '", "password", "'"),
        ("client_secret = '", "secret", "'"),
        ('SECRET_KEY_BASE="', "secret", '"'),
        ("aws_secret_access_key = ", "secret", "\n"),
        ('{\\"api_key\\": \\"', "api-key", '\\"}'),
        ("X-Api-Key: ", "api-key", ""),
        ("TWILIO_AUTH_TOKEN=", "token", ""),
        ("DATADOG_APP_KEY: ", "provider-key", ""),
        ("CLOUDFLARE_KEY=", "provider-key", ""),
        ('os.environ["MY_TOKEN"] = "', "token", '"'),
        ("AccountName=a;AccountKey=", "access-key", ";EndpointSuffix=b"),
        ("credentials: ", "credential", ""),
        ("'authToken' => '", "token", "'"),
        ("Authorization: Bearer ", "bearer-token", "'"),
        ('"Authorization": "Bearer ', "bearer-token", '"'),
        ("headers['authorization'] = 'token ", "bearer-token", "'"),
        ("postgres://app:", "password", "@db.internal:5432/app"),
        ("https://someone:", "password", "@host/path"),
    ],
)
def test_random_values_with_a_secret_name_are_redacted(before: str, kind: str, after: str) -> None:
    assert redact_and_count(before + VALUE + after) == (f"{before}[redacted {kind}]{after}", 1)


def test_basic_credentials_are_redacted() -> None:
    pair = base64.b64encode(b"someone:their-word").decode()
    assert redact(f"Authorization: Basic {pair}") == "Authorization: Basic [redacted basic-credentials]"
    assert redact("Authorization: Basic authentication") == "Authorization: Basic authentication"


def test_an_older_heroku_key_is_redacted_by_name() -> None:
    key = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
    assert redact(f"HEROKU_API_KEY={key}") == "HEROKU_API_KEY=[redacted heroku-key]"
    assert redact(f"session_token={key}") == f"session_token={key}"


def test_hexadecimal_keys_are_redacted_by_name() -> None:
    assert redact(f"api_key={HEX[:32]}") == "api_key=[redacted api-key]"
    assert redact(f"commit {HEX[:40]}") == f"commit {HEX[:40]}"


@pytest.mark.parametrize(
    "text",
    [
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "id: 550e8400-e29b-41d4-a716-446655440000",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        '"integrity": "sha512-' + MIXED[:86] + '=="',
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAA",
        "token count: 1234567890",
        "max_tokens=4096, tokens_per_turn=1200, total_tokens: 12345678901",
        "privateKey: Uint8Array; signing_key = ed25519_dalek::SigningKey",
        "token = process.env.GITHUB_TOKEN_2",
        "password: ${DB_PASSWORD_1}",
        "api_key=<your-key-123456>",
        "api_key = os.environ['OPENAI_API_KEY_2']",
        "token = get_token_v2(request1)",
        "password = 'password123456'",
        "secret: xxxxxxxxxxxxxxxx1234",
        "api_key: REDACTED-1a2b3c4d5e",
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + "x" * 36,
        "sk-" + "fading-circle-of-dots-and-lines-and-more",
        "task-" + MIXED[:40],
        "next_page_token: " + VALUE,
        "postgres://postgres:postgres@localhost:5432/test",
        "http://user:${PASSWORD}@host and http://user:{password}@host",
        "http://localhost:8080/a@b",
        "git@github.com:owner/name.git",
        "Bearer tokens are sent in the Authorization: header",
        "Authorization: Bearer $TOKEN",
        "Authorization: Bearer <access-token-123>",
        BEGIN + "\n...\n" + END,
        "The file begins with `" + BEGIN + "` and then has lines.",
        "secret_path: src/thresher/memory/secrets2.py",
        "token: claude-sonnet-4-20250514",
        "",
    ],
)
def test_text_without_secrets_stays_the_same_object(text: str) -> None:
    result, count = redact_and_count(text)
    assert (result, count) == (text, 0)
    assert result is text


def test_only_the_secret_is_replaced() -> None:
    text = f"git clone https://me:{VALUE}@host/a.git && export A={'ghp_' + MIXED[:36]} # 2 of them\n"
    assert redact_and_count(text) == (
        "git clone https://me:[redacted password]@host/a.git && export A=[redacted github-token] # 2 of them\n",
        2,
    )


def test_a_truncated_key_does_not_remove_prose() -> None:
    text = "\n".join([BEGIN, *LINES[:3]]) + "\n\nThe rest is missing. See the notes about it, please."
    assert redact(text).startswith("[redacted private-key]")
    assert redact(text).endswith("rest is missing. See the notes about it, please.")


HOSTILE = [
    "a" * 200_000,
    "eyJ" * 70_000,
    "-eyJ" * 50_000,
    "eyJaaaaaaaaaa." * 14_000,
    ("eyJ" + "a" * 20 + ".eyJ") * 7_000,
    "password=" * 20_000,
    "token: " * 30_000,
    "-----BEGIN " * 20_000,
    BEGIN * 6_000,
    (BEGIN + "a" * 30) * 3_000,
    "://a:" * 40_000,
    "://" + "a" * 200_000,
    "ghp_" * 50_000,
    "sk-" * 70_000,
    "SG." * 70_000,
    "M" * 30 + "." + "a.-" * 60_000,
    "1:AA" * 50_000,
    "Authorization: Bearer " * 9_000,
    "_" * 200_000,
    ":" * 200_000,
    "=" * 200_000,
    "secret=" + "a1" * 100_000,
    "--password " * 20_000,
    "-u a:" * 40_000,
    "mysql -pa1!b2c" * 15_000,
    "mysql" + " -p a1!b2c3" * 15_000,
    "Cookie: " * 25_000,
    "Cookie: " + "a=b1; " * 40_000,
    "<password>" * 20_000,
    "<password>a1b2c3" * 15_000,
    "| password " * 20_000,
    "password a1!b2c3d " * 12_000,
    "login password " * 15_000,
    ' value="a1b2c3' * 15_000,
    ("dop" + "_v1_" + HEX[:64]) * 3_000,
    "A3-" * 60_000,
    "dapi" * 50_000,
    "tskey-auth-" * 20_000,
    "a.eyJ" * 40_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_takes_a_number_of_steps_in_proportion_to_its_length(text: str) -> None:
    once, twice = (_count_calls(text[: len(text) // 8 * factor]) for factor in (4, 8))
    assert twice <= 2.2 * once + 200


def _count_calls(text: str) -> int:
    """Return the number of functions that redaction calls, in Python and in C."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event.endswith("call")

    sys.setprofile(count)
    try:
        redact(text)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("scan", [scan for _, _, scan in redaction._SCANS], ids=lambda scan: scan.pivot)
def test_each_regex_looks_at_a_limited_number_of_characters_from_each_position(scan: redaction.PivotScan) -> None:
    """A repetition without a limit that can also give characters back makes a scan quadratic."""
    assert list(_unlimited_repetitions(sre_parse.parse(scan.pattern.pattern))) == []


def _unlimited_repetitions(node: Any) -> Iterator[Any]:
    if isinstance(node, tuple | list | sre_parse.SubPattern):
        match node:
            case (sre_parse.MAX_REPEAT | sre_parse.MIN_REPEAT, (_, sre_parse.MAXREPEAT, _)):
                yield node
        for inner in node:
            yield from _unlimited_repetitions(inner)


PIECES = st.sampled_from(
    [token for _, token in TOKENS]
    + [f"{prefix}{VALUE}" for prefix in ("password=", 'token": "', "Authorization: Bearer ", "a://b:")]
    + [
        "password",
        "token",
        "-key",
        "=",
        ": ",
        '"',
        "'",
        " ",
        "@",
        "-",
        "_",
        ".",
        "]",
        "[",
        "\n",
        "\\n",
        MIXED[:40],
        VALUE,
    ]
    + [BEGIN, END, "eyJ", "Bearer ", "://u:", "[redacted jwt]", "a", "é"]
)


@given(st.lists(PIECES | st.text(max_size=8), max_size=12).map("".join))
def test_redaction_is_idempotent(text: str) -> None:
    once, _ = redact_and_count(text)
    again, count = redact_and_count(once)
    assert again is once
    assert count == 0


@given(st.text(max_size=40), st.sampled_from(TOKENS), st.text(max_size=40))
def test_tokens_are_redacted_in_any_context(before: str, example: tuple[str, str], after: str) -> None:
    _, token = example
    assert token not in redact(f"{before} {token} {after}")


def test_nothing_but_secrets_is_redacted_in_recordings(shared_data: Path) -> None:
    read = 0
    unknown: set[tuple[str, str, str]] = set()
    for path in sorted(shared_data.glob("*/*")):
        try:
            sessions = read_all(path)
        except UnknownFormatError:
            continue
        for text in _texts([[message.parts for message in session.messages()] for session in sessions]):
            read += len(text)
            if redact_and_count(text)[1]:
                unknown |= {
                    (path.name, secret.kind, text[secret.start : secret.end])
                    for secret in redaction._find_secrets(text)
                    if _digest(text[secret.start : secret.end]) not in REAL_SECRETS
                }
    assert read > 20_000_000
    assert unknown == set()


def _digest(value: str) -> str:
    return blake2b(value.encode(), digest_size=6).hexdigest()


REAL_SECRETS = {
    "8eab621becd1",
    "f873f6f3d1de",
    "33f8cae7f2df",
    "dc23ec0c0e63",
    "b6db2017080a",
    "b721891daec9",
    "2176e39f0d28",
    "37dc8a03e7ee",
    "195565dcfc32",
    "bf4c3a772839",
    "eba0f0114338",
    "f8154b30e431",
    "f3c87d52f48a",
    "06e1c56a0488",
    "a396ebffc11f",
    "113c33f33c32",
}
"""Digests of the values in the recordings that look like secrets: passwords and tokens of made-up accounts, keys."""


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case msgspec.Struct():
            yield from _texts([getattr(value, name) for name in value.__struct_fields__])
        case list() | tuple():
            for item in value:
                yield from _texts(item)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        *((name, True) for name in ("password", "dbPassword", "API_KEY", "client-secret", "authToken", "credentials")),
        *((name, False) for name in ("note", "key", "page_token", "max_tokens", "secretary", "password_hint", "")),
    ],
)
def test_secret_names_are_recognized(name: str, told: bool) -> None:
    """A field with the same name as a redacted value is redacted, too."""
    value = MIXED[:24]
    assert is_secret_name(name) is told
    assert (value not in redact(f"{name}: {value}")) is told
