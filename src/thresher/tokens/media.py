"""Token counts of images, documents and audio, by the vendors' published rules.

Sizes are parsed from the first bytes of the file. Only a PDF is decoded completely, to count its pages. Each rule has a
name, because one vendor has several: Claude 4.7 and later process images at a higher resolution, and OpenAI counted
tiles before it counted patches. A vendor's name selects its default rule. Unknown vendors use the rule `anthropic`:
its count for a screenshot is between the counts of OpenAI and Gemini, and its maximum is near `UNKNOWN_MEDIA_TOKENS`.
"""

import re
from binascii import a2b_base64
from collections.abc import Mapping
from math import ceil, sqrt
from typing import NamedTuple

from thresher.model import Image

UNKNOWN_MEDIA_TOKENS = 1500
"""Tokens of an image or document of unknown size: about one screenshot for Claude."""
HEAD = 4096
"""Base64 characters to decode for the pixel size of most images; a JPEG may need `LONG_HEAD`."""
LONG_HEAD = 262_144
BYTES_PER_PAGE = 50_000
"""Estimated bytes per page, for a PDF whose page tree is compressed."""
SOUND_BYTES_PER_SECOND = 16_000
"""Bytes per second at 128 kbit/s, the usual rate of MP3 and similar formats."""


class PatchRule(NamedTuple):
    """Counts a constant per square patch; an image is first scaled down to a maximum edge and number of patches."""

    square: int
    edge: int
    max_patches: int
    tokens: float = 1.0

    def weigh(self, width: int, height: int) -> int:
        """Return the tokens of an image."""
        scale = min(1.0, self.edge / max(width, height), sqrt(self.max_patches * self.square**2 / (width * height)))
        squares = ceil(width * scale / self.square) * ceil(height * scale / self.square)
        return ceil(min(squares, self.max_patches) * self.tokens)


class TileRule(NamedTuple):
    """Rule that counts a constant for the image and another one for each tile of 512 by 512 pixels.

    An image is first scaled down, so that the long side is at most 2048 pixels and the short side at most 768.
    """

    base: int
    tile: int

    def weigh(self, width: int, height: int) -> int:
        """Return the tokens of an image."""
        scale = min(1.0, 2048 / max(width, height))
        scale = min(scale, 768 / min(width, height))
        return self.base + self.tile * ceil(width * scale / 512) * ceil(height * scale / 512)


class CropRule(NamedTuple):
    """Counts a constant per crop: a small image is one crop, a larger one has a crop per square of 768 pixels."""

    tokens: int

    def weigh(self, width: int, height: int) -> int:
        """Return the tokens of an image."""
        if max(width, height) <= 384:
            return self.tokens
        return self.tokens * ceil(width / 768) * ceil(height / 768)


class FixedImageRule(NamedTuple):
    """Counts the same constant for every image."""

    tokens: int

    def weigh(self, width: int, height: int) -> int:  # noqa: ARG002 - same signature as the other rules
        """Return the tokens of an image."""
        return self.tokens


class MediaRule(NamedTuple):
    """Media rules of one family of models."""

    picture: PatchRule | TileRule | CropRule | FixedImageRule
    tokens_per_page: int
    """Tokens of one PDF page: its text and its image."""
    tokens_per_second: int
    """Tokens of one second of audio; 0 if the models do not accept audio."""


MEDIA_RULES: Mapping[str, MediaRule] = {
    # https://platform.claude.com/docs/en/build-with-claude/vision and .../pdf-support (1,500 to 3,000 a page)
    "anthropic": MediaRule(PatchRule(28, 1568, 1568), 2250, 0),
    "anthropic-high": MediaRule(PatchRule(28, 2576, 4784), 2250, 0),
    # https://developers.openai.com/api/docs/guides/images-vision (a PDF counts as the text and an image of each page)
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
    """Return the tokens of an image, a PDF or audio, by the rule of a vendor or a model family."""
    rule = MEDIA_RULES.get(vendor, MEDIA_RULES["anthropic"])
    data = image.data or (image.url.partition(",")[2] if image.url.startswith("data:") else "")
    if not data:
        return UNKNOWN_MEDIA_TOKENS
    if image.media_type == "application/pdf" or data.startswith("JVBERi"):
        return rule.tokens_per_page * _count_pages(_decode_base64(data, len(data)))
    if image.media_type.startswith("audio/"):
        if not rule.tokens_per_second:
            return UNKNOWN_MEDIA_TOKENS
        return max(1, round(rule.tokens_per_second * _audio_seconds(data)))
    size = picture_size(data)
    return rule.picture.weigh(*size) if size else UNKNOWN_MEDIA_TOKENS


def picture_size(data: str) -> tuple[int, int] | None:
    """Parse width and height of a base64 image (PNG, JPEG, GIF, WebP) from its first bytes."""
    head = _decode_base64(data, HEAD)
    if head.startswith(b"\xff\xd8"):
        size = _jpeg_size(head) or _jpeg_size(_decode_base64(data, LONG_HEAD))
    elif head.startswith(b"\x89PNG\r\n\x1a\n"):
        size = int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    elif head.startswith((b"GIF87a", b"GIF89a")):
        size = int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        size = _webp_size(head)
    else:
        size = None
    return size if size and min(size) > 0 else None


def _decode_base64(data: str, characters: int) -> bytes:
    try:
        return a2b_base64(data[: characters - characters % 4] + "===")
    except ValueError:
        return b""


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    """Parse the size in the frame header, skipping the segments before it."""
    offset = 2
    while offset + 9 <= len(head) and head[offset] == 0xFF:
        marker = head[offset + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(head[offset + 7 : offset + 9]), int.from_bytes(head[offset + 5 : offset + 7])
        filler = marker == 0xFF
        offset += 1 if filler else 2 + int.from_bytes(head[offset + 2 : offset + 4])
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    return None


_PDF_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_PDF_PAGE_COUNT = re.compile(rb"/Count\s+(\d{1,5})(?!\d)")


def _count_pages(document: bytes) -> int:
    """Estimate the number of pages from page objects or the page tree, whichever is more, or from the size."""
    declared = max((int(count) for count in _PDF_PAGE_COUNT.findall(document)), default=0)
    return max(len(_PDF_PAGE.findall(document)), declared) or max(1, len(document) // BYTES_PER_PAGE)


def _audio_seconds(data: str) -> float:
    head = _decode_base64(data, HEAD)
    is_wave = head[:4] == b"RIFF" and head[8:12] == b"WAVE"
    rate = int.from_bytes(head[28:32], "little") if is_wave else SOUND_BYTES_PER_SECOND
    return len(data) * 3 / 4 / (rate or SOUND_BYTES_PER_SECOND)
