from datetime import UTC, datetime

import pytest
from msgspec import structs

from thresher.errors import OptionError
from thresher.memory.search.query import Query, content_words, parse_date_or_age, parse_query

NOW = datetime(2026, 3, 15, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("jwt refresh", Query(words="jwt refresh")),
        ('"refresh token" jwt', Query(words="jwt", phrases=("refresh token",))),
        ("“refresh token” jwt", Query(words="jwt", phrases=("refresh token",))),
        ("authent* jwt", Query(words="jwt", prefixes=("authent",))),
        ('"" *', Query(words="*")),
        ('an "open quote', Query(words='an "open quote')),
        ("a AND NOT (b) -c +d ~e^2 {f TO g}", Query(words="a AND NOT (b) -c +d ~e^2 {f TO g}")),
        ("nul\0byte", Query(words="nul byte")),
        ("", Query()),
    ],
)
def test_only_quotes_and_the_asterisk_are_syntax(text: str, wanted: Query) -> None:
    assert parse_query(text) == structs.replace(wanted, typed=text.replace("\0", " "))


def test_a_long_query_is_truncated() -> None:
    assert len(parse_query("word " * 50_000).words) < 4001


def test_stop_words_count_only_alone() -> None:
    assert content_words(["how", "did", "we", "fix", "the", "jwt", "fix"]) == ["fix", "jwt"]
    assert content_words(["who", "are", "you"]) == ["who", "are", "you"]


@pytest.mark.parametrize(
    ("text", "end", "wanted"),
    [
        ("2026-03-01", False, datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01", True, datetime(2026, 3, 2, tzinfo=UTC)),
        ("2026-03-01T10:30", True, datetime(2026, 3, 1, 10, 30, tzinfo=UTC)),
        ("2026-03-01T10:30:00z", False, datetime(2026, 3, 1, 10, 30, tzinfo=UTC)),
        ("7d", False, datetime(2026, 3, 8, 12, tzinfo=UTC)),
        ("2 weeks", False, datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("12h", False, datetime(2026, 3, 15, 0, tzinfo=UTC)),
        ("today", False, datetime(2026, 3, 15, tzinfo=UTC)),
        ("yesterday", False, datetime(2026, 3, 14, tzinfo=UTC)),
        ("yesterday", True, datetime(2026, 3, 15, tzinfo=UTC)),
    ],
)
def test_dates_and_ages_are_parsed(text: str, end: bool, wanted: datetime) -> None:
    assert parse_date_or_age(text, NOW, end=end) == wanted


def test_an_invalid_date_is_reported_with_examples() -> None:
    with pytest.raises(OptionError, match="`2026-03-01`, `7d`"):
        parse_date_or_age("last tuesday", NOW)
