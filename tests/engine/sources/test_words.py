"""What a word is: a change here changes every index."""

from driftline.engine.sources.texts.words import words


def test_words_are_lower_case_letters_digits_and_underscores() -> None:
    text = "Über-Maß, it's snake_case\n3.5 мир 東京"
    assert " ".join(words({"text": text})) == "über maß it s snake_case 3 5 мир 東京"


def test_a_title_comes_first() -> None:
    assert words({"title": "A cat", "text": "eats"}) == ["a", "cat", "eats"]
    assert words({"title": "", "text": 5}) == ["5"]
