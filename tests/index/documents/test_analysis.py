"""Analysers: expected words of sample texts, and properties for any text."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driftline.index.documents.analysis import WORD_MAX, UnknownAnalyser, analyser, folded

ALL = ("plain", "folded", "cjk", "english", "german", "turkish", "dutch_porter")

# Characters that some analyser treats specially.
ODD = (
    "aZ9_ .-'é\u00df\u0130\u0131\u03a3\u03c2½\ufb01Ⅷ東京都㍿々ーがガｶﾞ\u3099\u309b"
    "\u0301\u0308\u0345한국\u1112\u1161\u11ab\u0938\u094dก็😀\u200d\n"
    "Iø\u0307\u00ad\u034f\u200b\u200c\u20e3\ufe0f\U00011234\U000e0041\U000e0101"
)
texts = st.text(st.sampled_from(ODD) | st.characters(), max_size=40) | st.text(max_size=40)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "plain",
            "Über-Maß, it's snake_case\n3.5 мир 東京都",
            "über maß it s snake_case 3 5 мир 東京都",
        ),
        ("plain", "यह किताब, कुतुब", "यह किताब कुतुब"),
        ("plain", "Ha\u0308user co\u00adoperate", "häuser cooperate"),
        ("plain", "क\u200cक ก็\u200bก 1\ufe0f\u20e3", "कक ก็ ก 1"),
        ("hindi", "किताबें", "किताब"),
        ("folded", "Über-Maß, ŁÓDŹ \uff21lt \ufb01n Ⅷ \u0130I", "uber mass lodz alt fin viii ii"),
        ("folded", "Ǿre Đà ærlig Œuvre \u0131l\u0131k किताब", "ore da aerlig oeuvre ilik किताब"),
        ("cjk", "東京\U000e0100都 किताब कक", "東京 京都 किताब कक"),
        ("folded", "cafe\u0301s e\u0323\u0301", "cafes e"),
        ("folded", "かき かぎ か\u3099", "かき かき\u3099 か\u3099"),
        ("cjk", "東京都は、Tokyo 2020年 木", "東京 京都 都は tokyo 2020 年 木"),
        (
            "cjk",
            "スーパー ｽｰﾊﾟｰ abc東京xyz",
            "スー ーハ\u309a ハ\u309aー スー ーハ\u309a ハ\u309aー abc 東京 xyz",
        ),
        ("cjk", "カフェ Cafés", "カフ フェ cafes"),
        ("english", "The runner's cats were running", "the runner s cat were run"),
        ("german", "Die Häuser der Städte", "die haus der stadt"),
        ("turkish", "Evlerde leri", "ev leri"),  # the stem of leri is empty
        ("turkish", "ISI \u0130L I\u0307L \u0131s\u0131", "\u0131s il il \u0131s"),
    ],
)
def test_analyser_splits_text_into_words(name: str, text: str, words: str) -> None:
    assert analyser(name).words(text) == words.split(" ")


@pytest.mark.parametrize("name", ALL)
@given(text=texts)
@example(text="İ½ " + "㍿" * 3 + " x\u0301\u0301 " + "a" * 300 + "é" * 300)
def test_word_spans_cover_their_words(name: str, text: str) -> None:
    by = analyser(name)
    words, places = by.words(text), by.word_spans(text)
    assert places == sorted(places)
    for word, (start, end) in zip(words, places, strict=True):
        assert 0 <= start < end <= len(text)
        assert len(word) <= WORD_MAX
        if name in ("folded", "cjk"):  # the lower case of sigma depends on its neighbours
            assert word in by.words(text[start:end])


def without_ignored(text: str) -> str:
    """Remove format characters, enclosing marks and variation selectors."""
    formats = (each for each in text if unicodedata.category(each) in ("Cf", "Me"))
    ignored = "".join(formats).replace("\u200b", "")
    selectors = "\u034f\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
    return re.sub(f"[{selectors}]", "", text.translate(dict.fromkeys(map(ord, ignored))))


@given(texts)
def test_words_are_letters_digits_and_underscores_with_marks(text: str) -> None:
    words, inside = list[str](), False
    low = unicodedata.normalize("NFC", text.lower())
    for each in unicodedata.normalize("NFC", without_ignored(low)):
        is_letter = each.isalnum() or each == "_"
        if is_letter and not inside:
            words.append(each)
        elif inside and (is_letter or unicodedata.category(each) in ("Mn", "Mc")):
            words[-1] += each
        inside = is_letter or (inside and unicodedata.category(each) in ("Mn", "Mc"))
    assert analyser("plain").words(text) == words
    assert analyser("english").unstemmed(text) == words


@given(texts)
def test_folding_equals_unicode_and_keyboard_folding(text: str) -> None:
    typed = str.maketrans({"ø": "o", "æ": "ae", "œ": "oe", "ł": "l", "đ": "d", "\u0131": "i"})
    kept = (
        each
        for each in unicodedata.normalize("NFKD", without_ignored(text))
        if each in "\u3099\u309a" or unicodedata.combining(each) == 0
    )
    assert folded(text) == "".join(kept).casefold().translate(typed)


@pytest.mark.parametrize("name", ALL)
@given(text=texts)
def test_canonically_equal_texts_have_the_same_words(name: str, text: str) -> None:
    words = analyser(name).words
    assert words(unicodedata.normalize("NFC", text)) == words(unicodedata.normalize("NFD", text))


def test_analysers_are_found_by_name() -> None:
    for name in ("plain", "folded", "cjk", "english", "german", "dutch_porter", "yiddish"):
        assert analyser(name).name == name
    with pytest.raises(UnknownAnalyser, match=r"'englisch' \(did you mean 'english'\?\)"):
        analyser("englisch")
