"""What a word is: a change here changes every index."""

from driftline.engine.sources.texts.generated import positions_of_words, words


def test_words_are_lower_case_letters_digits_and_underscores() -> None:
    text = "Über-Maß, it's snake_case\n3.5 мир 東京"
    assert " ".join(words({"text": text})) == "über maß it s snake_case 3 5 мир 東京"


def test_a_title_comes_first() -> None:
    assert words({"title": "A cat", "text": "eats"}) == ["a", "cat", "eats"]
    assert words({"title": "", "text": 5}) == ["5"]


def test_a_word_has_the_positions_that_it_has_among_the_words() -> None:
    text = "Sea, sea: see the SEA"
    found = positions_of_words(text)
    assert list(found.items()) == [("sea", [0, 1, 4]), ("see", [2]), ("the", [3])]
    assert all(words({"text": text})[place] == word for word in found for place in found[word])
