"""What pictures, documents and sound weigh, by the rules that the vendors publish.

Sizes are read from the first bytes of the file; nothing is decoded whole but a PDF, whose pages are counted. Each rule
has a name, for one vendor has several: Claude 4.7 and later see pictures in more detail, OpenAI counted tiles before
it counted patches. A vendor's own name means its current rule. Where no vendor is known the rule is Claude's
first one: it lies between OpenAI's and Gemini's for a screenshot, and its ceiling is near the weight of a
picture of unknown size.
"""

import re
from binascii import a2b_base64
from collections.abc import Mapping
from math import ceil, sqrt
from typing import NamedTuple

from thresher.model import Image

UNKNOWN_MEDIA_TOKENS = 1500
"""A picture or document whose size cannot be told: about a screenshot for Claude."""
HEAD = 4096
"""Enough of a file for its size in pixels, except for a JPEG with a long preface."""
LONG_HEAD = 262_144
BYTES_PER_PAGE = 50_000
"""A PDF that hides its pages in compressed streams."""
SOUND_BYTES_PER_SECOND = 16_000
"""128 kbit/s: what MP3 and its kin are mostly packed to."""


class PatchRule(NamedTuple):
    """Squares of so many pixels, a token each, after scaling down to the longest edge and to the most squares."""

    square: int
    edge: int
    max_patches: int
    tokens: float = 1.0

    def weigh(self, width: int, height: int) -> int:
        """Tokens of a picture."""
        scale = min(1.0, self.edge / max(width, height), sqrt(self.max_patches * self.square**2 / (width * height)))
        squares = ceil(width * scale / self.square) * ceil(height * scale / self.square)
        return ceil(min(squares, self.max_patches) * self.tokens)


class TileRule(NamedTuple):
    """A base, and more for each tile of 512 pixels, after scaling into 2048 and the short side to 768."""

    base: int
    tile: int

    def weigh(self, width: int, height: int) -> int:
        """Tokens of a picture."""
        scale = min(1.0, 2048 / max(width, height))
        scale = min(scale, 768 / min(width, height))
        return self.base + self.tile * ceil(width * scale / 512) * ceil(height * scale / 512)


class CropRule(NamedTuple):
    """One crop for a small picture, else one for each 768 pixels either way."""

    tokens: int

    def weigh(self, width: int, height: int) -> int:
        """Tokens of a picture."""
        if max(width, height) <= 384:
            return self.tokens
        return self.tokens * ceil(width / 768) * ceil(height / 768)


class FixedImageRule(NamedTuple):
    """The same for every picture."""

    tokens: int

    def weigh(self, width: int, height: int) -> int:  # noqa: ARG002 - as the other rules have it
        """Tokens of a picture."""
        return self.tokens


class MediaRule(NamedTuple):
    """How one family of models weighs media."""

    picture: PatchRule | TileRule | CropRule | FixedImageRule
    tokens_per_page: int
    """A page of a PDF: its text and its picture."""
    tokens_per_second: int
    """A second of sound; 0 where the models hear none."""


MEDIA_RULES: Mapping[str, MediaRule] = {
    # https://platform.claude.com/docs/en/build-with-claude/vision and .../pdf-support (1,500 to 3,000 a page)
    "anthropic": MediaRule(PatchRule(28, 1568, 1568), 2250, 0),
    "anthropic-high": MediaRule(PatchRule(28, 2576, 4784), 2250, 0),
    # https://developers.openai.com/api/docs/guides/images-vision (a PDF gives the text and a picture of each page)
    "openai": MediaRule(PatchRule(32, 2048, 2500, 1.2), 1300, 10),
    "openai-mini": MediaRule(PatchRule(32, 2048, 1536, 1.62), 1300, 10),
    "openai-tiles": MediaRule(TileRule(85, 170), 1300, 10),
    "openai-tiles-5": MediaRule(TileRule(70, 140), 1300, 10),
    "openai-tiles-o": MediaRule(TileRule(75, 150), 1300, 10),
    # https://ai.google.dev/gemini-api/docs/tokens and .../media-resolution
    "gemini": MediaRule(FixedImageRule(1120), 560, 32),
    "gemini-2": MediaRule(CropRule(258), 258, 32),
}


def media_tokens(image: Image, vendor: str = "") -> int:
    """Tokens of a picture, a PDF or sound, by the rule of a vendor (or of one of its families)."""
    rule = MEDIA_RULES.get(vendor, MEDIA_RULES["anthropic"])
    data = image.data or (image.url.partition(",")[2] if image.url.startswith("data:") else "")
    if not data:
        return UNKNOWN_MEDIA_TOKENS
    if image.media_type == "application/pdf" or data.startswith("JVBERi"):
        return rule.tokens_per_page * _pages(_decoded(data, len(data)))
    if image.media_type.startswith("audio/"):
        return (
            max(1, round(rule.tokens_per_second * _seconds(data))) if rule.tokens_per_second else UNKNOWN_MEDIA_TOKENS
        )
    size = picture_size(data)
    return rule.picture.weigh(*size) if size else UNKNOWN_MEDIA_TOKENS


def picture_size(data: str) -> tuple[int, int] | None:
    """Width and height of a picture in base64 (PNG, JPEG, GIF, WebP), from its first bytes."""
    head = _decoded(data, HEAD)
    if head.startswith(b"\xff\xd8"):
        size = _jpeg(head) or _jpeg(_decoded(data, LONG_HEAD))
    elif head.startswith(b"\x89PNG\r\n\x1a\n"):
        size = int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    elif head.startswith((b"GIF87a", b"GIF89a")):
        size = int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        size = _webp(head)
    else:
        size = None
    return size if size and min(size) > 0 else None


def _decoded(data: str, characters: int) -> bytes:
    try:
        return a2b_base64(data[: characters - characters % 4] + "===")
    except ValueError:
        return b""


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """The frame header's size; segments before it are skipped by their lengths."""
    place = 2
    while place + 9 <= len(head) and head[place] == 0xFF:
        marker = head[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(head[place + 7 : place + 9]), int.from_bytes(head[place + 5 : place + 7])
        filler = marker == 0xFF
        place += 1 if filler else 2 + int.from_bytes(head[place + 2 : place + 4])
    return None


def _webp(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    return None


_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_COUNT = re.compile(rb"/Count\s+(\d{1,5})(?!\d)")


def _pages(document: bytes) -> int:
    """About how many pages: those that stand in the open, else the largest count of any page tree, else by size."""
    told = max((int(count) for count in _COUNT.findall(document)), default=0)
    return max(len(_PAGE.findall(document)), told) or max(1, len(document) // BYTES_PER_PAGE)


def _seconds(data: str) -> float:
    head = _decoded(data, HEAD)
    wave = head[:4] == b"RIFF" and head[8:12] == b"WAVE"
    rate = int.from_bytes(head[28:32], "little") if wave else SOUND_BYTES_PER_SECOND
    return len(data) * 3 / 4 / (rate or SOUND_BYTES_PER_SECOND)
