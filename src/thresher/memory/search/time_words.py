"""Recognize time words in a question: "yesterday", "two weeks ago", "in early march", "last spring", "christmas eve".

A time without a year is the most recent one before the question. Words that are also something else ("march", "fall",
"may") count only after a word such as "in" or "last", or before a year.
"""

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

_MONTH_NAMES = (
    "january|januar|janvier|enero",
    "february|februar|février|fevrier|febrero",
    "march|märz|mars|marzo",
    "april|avril|abril",
    "may|mai|mayo",
    "june|juni|juin|junio",
    "july|juli|juillet|julio",
    "august|août|aout|agosto",
    "september|septembre|septiembre",
    "october|oktober|octobre|octubre",
    "november|novembre|noviembre",
    "december|dezember|décembre|decembre|diciembre",
)
_SEASONS = {
    "spring|frühling|frühjahr|printemps|primavera": 3,
    "summer|sommer|été|verano": 6,
    "autumn|fall|herbst|automne|otoño": 9,
    "winter|hiver|invierno": 12,
}
"""Names of seasons, each with its first month."""
_HOLIDAYS = {
    "christmas eve": (12, 24, 1),
    "christmas": (12, 24, 3),
    "new year['’]?s eve": (12, 31, 1),
    "new year(?:['’]?s)?(?: day)?": (1, 1, 2),
    "valentine['’]?s(?: day)?": (2, 14, 1),
    "halloween": (10, 31, 1),
}
"""Holidays with month, day and number of days."""
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {"a": 1, "an": 1, "one": 1, "a couple of": 2, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
_PART_DAYS = {"early": (0, 12), "mid": (8, 22), "late": (18, 31)}
"""First and last day of a part of a month; the parts overlap."""
_AMBIGUOUS = frozenset({"march", "mars", "may", "mai", "fall", "spring", "été"})

_LAST = "last|previous|letzte[nrsm]?|vergangene[nrsm]?|dernier|passé|pasad[oa]"
_BEFORE = rf"{_LAST}|this|in|im|during|since|of|from|en|el"
_LEAD = rf"(?:(?P<lead>{_BEFORE})\s+(?:(?:the|el)\s+)?)?(?:(?P<part>early|mid|late)[\s-]+)?"
_TAIL = r"(?:\s+(?:of\s+)?(?P<year>20\d\d))?\b"
_NAMES = "|".join((*_MONTH_NAMES, *_SEASONS))
_NAMED = re.compile(rf"\b{_LEAD}(?P<name>{_NAMES}){_TAIL}", re.IGNORECASE)
_HOLIDAY = re.compile(rf"\b(?P<name>{'|'.join(_HOLIDAYS)}){_TAIL}", re.IGNORECASE)
_AGO = re.compile(rf"\b(\d{{1,2}}|{'|'.join(_NUMBERS)}) (day|week|month|year)s? ago\b", re.IGNORECASE)
_RELATIVE = re.compile(r"\b(today|yesterday|last night|(?:this|last) (?:week|month|year))\b", re.IGNORECASE)
_WEEKDAY = re.compile(rf"\b(?:last|on|this) ({'|'.join(_WEEKDAYS)})\b", re.IGNORECASE)
_DATE = re.compile(r"\b(20\d\d)-(\d\d)(?:-(\d\d))?\b")
_YEAR = re.compile(r"\b(?:in|of|from|during) (20\d\d)\b(?!-)", re.IGNORECASE)


class Period(NamedTuple):
    """A time that a question mentions."""

    words: str
    start: datetime
    end: datetime


def find_periods(question: str, now: datetime) -> list[Period]:
    """Return the periods that a question mentions, without those that begin after `now`."""
    text = question[:2000]
    found = [*_dates(text, now), *_relative_periods(text, now), *_named_periods(text, now)]
    return [period for period in found if period.start <= now]


def _dates(text: str, now: datetime) -> Iterator[Period]:
    for match in _DATE.finditer(text):
        year, month, day = int(match[1]), int(match[2]), int(match[3] or 1)
        if 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]:
            start = _day(now, year, month, day)
            yield Period(match[0], start, start + timedelta(days=1 if match[3] else monthrange(year, month)[1]))
    for match in _YEAR.finditer(text):
        yield Period(match[0], _day(now, int(match[1]), 1, 1), _day(now, int(match[1]) + 1, 1, 1))


def _relative_periods(text: str, now: datetime) -> Iterator[Period]:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    for match in _RELATIVE.finditer(text):
        yield Period(match[0], *_relative_period(match[0].lower(), midnight))
    for match in _AGO.finditer(text):
        days = _UNIT_DAYS[match[2].lower()]
        middle = midnight - timedelta(days=days * int(_NUMBERS.get(match[1].lower(), 0) or match[1]))
        yield Period(match[0], middle - timedelta(days=days // 2), middle + timedelta(days=days // 2 + 1))
    for match in _WEEKDAY.finditer(text):
        back = (midnight.weekday() - _WEEKDAYS.index(match[1].lower())) % 7 or 7
        start = midnight - timedelta(days=back)
        yield Period(match[0], start, start + timedelta(days=1))


def _relative_period(words: str, midnight: datetime) -> tuple[datetime, datetime]:
    day, tomorrow = timedelta(days=1), midnight + timedelta(days=1)
    week = midnight - midnight.weekday() * day
    month, year = midnight.replace(day=1), midnight.replace(month=1, day=1)
    last_month, last_year = (month - day).replace(day=1), year.replace(year=year.year - 1)
    return {
        "today": (midnight, tomorrow),
        "yesterday": (midnight - day, midnight),
        "last night": (midnight - day / 4, midnight + day / 4),
        "this week": (week, tomorrow),
        "last week": (week - 7 * day, week),
        "this month": (month, tomorrow),
        "last month": (last_month, month),
        "this year": (year, tomorrow),
        "last year": (last_year, year),
    }[words]


def _named_periods(text: str, now: datetime) -> Iterator[Period]:
    for match in _NAMED.finditer(text):
        name, lead, part, year = (match[group] or "" for group in ("name", "lead", "part", "year"))
        if name.lower() in _AMBIGUOUS and not (lead or part or year):
            continue
        is_over = re.fullmatch(_LAST, lead, re.IGNORECASE) is not None
        yield Period(match[0], *_latest(now, int(year or 0), *_first_month(name), part.lower(), is_over=is_over))
    for match in _HOLIDAY.finditer(text):
        month, day, days = next(value for name, value in _HOLIDAYS.items() if re.fullmatch(name, match["name"], re.I))
        year = int(match["year"] or 0) or now.year - (_day(now, now.year, month, day) > now)
        start = _day(now, year, month, day)
        yield Period(match[0], start, start + timedelta(days=days))


def _first_month(name: str) -> tuple[int, int]:
    """Return the first month of a named period, and its number of months."""
    for month, names in enumerate(_MONTH_NAMES, 1):
        if re.fullmatch(names, name, re.IGNORECASE):
            return month, 1
    return next(month for names, month in _SEASONS.items() if re.fullmatch(names, name, re.IGNORECASE)), 3


def _latest(
    now: datetime, year: int, month: int, months: int, part: str, *, is_over: bool
) -> tuple[datetime, datetime]:
    """Return the period of this `year`; without one, the latest that has begun, or that `is_over`."""
    for one in (year,) if year else (now.year, now.year - 1, now.year - 2):
        start, after = _day(now, one, month, 1), month + months
        end = _day(now, one + (after > 12), after - 12 if after > 12 else after, 1)
        if part in _PART_DAYS and months == 1:
            first, last = _PART_DAYS[part]
            start, end = start + timedelta(days=first), min(end, start + timedelta(days=last))
        if year or (end if is_over else start) <= now:
            break
    return start, end


def _day(now: datetime, year: int, month: int, day: int) -> datetime:
    return now.replace(year=year, month=month, day=day, hour=0, minute=0, second=0, microsecond=0)
