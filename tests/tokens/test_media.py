"""Images, documents and audio: sizes from real headers, tokens by the published rules."""

import base64
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.model import Image
from thresher.tokens.media import MEDIA_RULES, UNKNOWN_MEDIA_TOKENS, media_tokens, picture_size


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(header))


def jpeg(width: int, height: int, *, preface: int = 16) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", preface + 2) + b"\xff" * preface
    return b"\xff\xd8" + exif + b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(20)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(10)


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF" + bytes(4) + b"WEBP" + kind + bytes(4) + body


def wave(seconds: int, rate: int = 8000) -> bytes:
    return (
        b"RIFF" + bytes(4) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, rate, rate, 1, 8) + bytes(seconds * rate)
    )


@pytest.mark.parametrize(
    "data",
    [
        png(640, 480),
        jpeg(640, 480),
        jpeg(640, 480, preface=60_000),
        gif(640, 480),
        webp(b"VP8X", bytes(4) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")),
        webp(b"VP8L", b"\x2f" + (639 | 479 << 14).to_bytes(4, "little")),
        webp(b"VP8 ", bytes(6) + struct.pack("<HH", 640, 480)),
    ],
    ids=["png", "jpeg", "jpeg with a long preface", "gif", "webp", "webp, lossless", "webp, lossy"],
)
def test_sizes_are_parsed_from_headers(data: bytes) -> None:
    assert picture_size(encoded(data)) == (640, 480)


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF....WEBPVP8 "]),
)
def test_broken_images_have_no_size_or_a_positive_one(data: bytes, start: bytes) -> None:
    size = picture_size(encoded(start + data))
    assert size is None or min(size) > 0


@given(
    st.text(max_size=50),
    st.sampled_from(["", "image/png", "application/pdf", "audio/wav"]),
    st.sampled_from([*MEDIA_RULES, ""]),
)
def test_any_media_has_tokens(data: str, media_type: str, vendor: str) -> None:
    assert media_tokens(Image(media_type, data), vendor) > 0


@pytest.mark.parametrize(
    ("vendor", "size", "tokens"),
    [
        ("anthropic", (200, 200), 64),
        ("anthropic", (1092, 1092), 1521),
        ("anthropic", (8000, 100), 56),
        ("anthropic-high", (2576, 1449), 4784),
        ("openai", (1024, 1024), 1229),
        ("openai-tiles", (1024, 1024), 765),
        ("openai-tiles", (2048, 4096), 1105),
        ("openai-mini", (1024, 1024), 1659),
        ("gemini-2", (384, 384), 258),
        ("gemini-2", (1000, 700), 516),
        ("gemini", (1000, 700), 1120),
    ],
)
def test_the_rules_of_the_vendors(vendor: str, size: tuple[int, int], tokens: int) -> None:
    assert media_tokens(Image("image/png", encoded(png(*size))), vendor) == tokens


@given(st.integers(1, 9000), st.integers(1, 9000), st.sampled_from(sorted(MEDIA_RULES)))
def test_no_image_exceeds_its_maximum(width: int, height: int, vendor: str) -> None:
    tokens = MEDIA_RULES[vendor].picture.weigh(width, height)
    ceiling = {"anthropic": 1568, "anthropic-high": 4784, "openai": 3000, "openai-mini": 2489, "gemini": 1120}
    assert 0 < tokens <= ceiling.get(vendor, 40_000)


def test_the_default_rule_is_claudes() -> None:
    picture = Image("image/png", encoded(png(800, 600)))
    assert media_tokens(picture, "") == media_tokens(picture, "nobody") == media_tokens(picture, "anthropic")


def test_pages_of_a_document_are_counted() -> None:
    page = b"<< /Type /Page /Parent 1 0 R >>\n"
    document = b"%PDF-1.7\n<< /Type /Pages /Kids [] /Count 3 >>\n" + page * 3
    assert media_tokens(Image("application/pdf", encoded(document)), "gemini-2") == 3 * 258
    assert media_tokens(Image("", encoded(document)), "gemini-2") == 3 * 258


def test_audio_is_counted_by_its_length() -> None:
    assert media_tokens(Image("audio/wav", encoded(wave(10))), "gemini") == pytest.approx(320, rel=0.01)
    assert media_tokens(Image("audio/mp3", encoded(bytes(160_000))), "gemini") == pytest.approx(320, rel=0.01)
    assert media_tokens(Image("audio/mp3", encoded(bytes(160_000))), "anthropic") == UNKNOWN_MEDIA_TOKENS


def test_an_image_with_only_a_url_has_the_default_count() -> None:
    assert media_tokens(Image("image/png", url="https://example.org/a.png"), "openai") == UNKNOWN_MEDIA_TOKENS
    inside = Image("image/png", url="data:image/png;base64," + encoded(png(200, 200)))
    assert media_tokens(inside, "anthropic") == 64
