"""What the estimate of a conversation's cost assumes about the tokens of removed content."""

from thresher.serve.proxy.costs import MIN_SCALE_TOKENS, ContentScale


def test_content_is_scaled_by_what_added_content_cost() -> None:
    scale = ContentScale()
    # System text and tools: 10,000 tokens as billed, 5,000 as counted. Content: as counted.
    assert scale.measure(10_000, 5_000, 0) == 2.0
    assert scale.measure(10_000 + MIN_SCALE_TOKENS, 5_000 + MIN_SCALE_TOKENS, 0) == 1.0
    assert scale.measure(10_900, 5_900, 4_000) == 1.0


def test_a_request_with_other_edits_says_nothing_about_content() -> None:
    scale = ContentScale()
    scale.measure(10_000, 10_000, 0)
    assert scale.measure(15_000, 10_000, 9_000) == 1.5
    assert scale.measure(20_000, 10_000, 9_000) == 2.0  # nothing was added
    assert scale.measure(9_000, 12_000, 9_000) == 0.75  # less was billed
