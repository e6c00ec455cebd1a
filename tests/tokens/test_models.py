"""The catalog of models, and finding a model by name."""

from pathlib import Path

import pytest

from thresher.tokens import find_model, load_models
from thresher.tokens.media import MEDIA_RULES
from thresher.tokens.model_catalog import ModelCatalogError


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-opus-4-0", "claude-opus-4"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("us.anthropic.claude-opus-4-6-v1:0", "claude-opus-4-6"),
        ("claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("claude-sonnet-4-6[1m]", "claude-sonnet-4-6"),
        ("Claude-Haiku-4-5", "claude-haiku-4-5"),
        ("openai/gpt-5.5-2026-04-23", "gpt-5.5"),
        ("gpt-5.3-codex-spark", "gpt-5.3-codex-spark"),
        ("gpt-5.6", "gpt-5.6-sol"),
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("models/gemini-2.5-flash-lite-preview-06-17", "gemini-2.5-flash-lite"),
        ("o3-2025-04-16", "o3"),
    ],
)
def test_a_name_finds_its_model(name: str, found: str) -> None:
    model = find_model(name)
    assert model is not None
    assert model.name == found


@pytest.mark.parametrize(
    "name", ["", "llama-4", "gpt-50", "o30", "claude", "claude-opus-4-99", "gpt-5.99", "<synthetic>"]
)
def test_an_unknown_name_finds_no_model(name: str) -> None:
    assert find_model(name) is None


@pytest.mark.parametrize("model", load_models().values(), ids=lambda model: model.name)
def test_every_row_is_plausible(model) -> None:  # type: ignore[no-untyped-def]
    assert model.vendor in ("anthropic", "openai", "gemini")
    assert model.media in MEDIA_RULES
    assert model.window > model.max_output > 1000
    assert 0 < model.price.cache_read < model.price.input <= model.price.cache_write < model.price.output
    assert model.price.cache_write_1h is None or model.price.cache_write_1h > model.price.cache_write
    assert 0.8 < model.factor < 2
    assert model.source.startswith("https://")
    assert model.checked
    assert find_model(model.name) is model


def test_newer_claude_models_bind_their_thinking() -> None:
    bound = {model.name for model in load_models().values() if model.preserved_thinking}
    assert {"claude-fable-5-1", "claude-fable-5-2", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"} <= bound
    assert not bound & {"claude-opus-5", "claude-sonnet-4-5", "gpt-5.5"}


TOML = """
[[models]]
name = "house-model"
vendor = "openai"
window = 32_000
max_output = 4_000
aliases = ["hm"]
[models.price]
input = 1.0
output = 2.0
cache_read = 0.5
cache_write = 1.0
"""
JSON = """{"models": [{"name": "gpt-5.5", "vendor": "openai", "window": 64000, "max_output": 4000,
"price": {"input": 1, "output": 2, "cache_read": 0.5, "cache_write": 1}}]}"""


def test_a_file_adds_models_and_overrides_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(TOML)
    monkeypatch.setenv("THRESHER_MODELS", str(tmp_path / "mine.toml"))
    house = find_model("hm")
    assert house is not None
    assert house.window == 32_000
    assert "claude-opus-4-6" in load_models()
    (tmp_path / "mine.json").write_text(JSON)
    monkeypatch.setenv("THRESHER_MODELS", str(tmp_path / "mine.json"))
    assert load_models()["gpt-5.5"].window == 64_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read as a model catalog"),
        ("[]", "missing list `models`"),
        ('{"models": [{"name": "x"}]}', "missing required field"),
        ('{"models": [{"name": "x", "colour": "red"}]}', "colour"),
    ],
)
def test_the_error_for_a_bad_file_names_it(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    monkeypatch.setenv("THRESHER_MODELS", str(file))
    with pytest.raises(ModelCatalogError, match=said) as caught:
        load_models()
    assert "bad.json" in str(caught.value)


def test_a_missing_file_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_MODELS", "/nowhere/models.json")
    with pytest.raises(ModelCatalogError, match="nowhere"):
        find_model("gpt-5.5")
