"""Random versions of documents."""

from hypothesis import strategies as st

from driftline.index.documents.values import Value
from driftline.index.documents.versions import DocumentVersion, ReplacedField, Words

texts = st.text(st.characters(codec="utf-8"), max_size=5)
words = st.sampled_from(["a", "ab", "abc", "b", "ba", "z", "ö", "日本", "😀", "x" * 255]) | texts
lengths = st.integers(0, 2**32 - 1)
values: st.SearchStrategy[Value | None] = (
    st.none()
    | st.floats(allow_nan=False)
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.lists(words, max_size=3).map(tuple)
)


@st.composite
def fields(draw: st.DrawFn) -> Words:
    """Draw words with arbitrary positions, not only adjacent ones."""
    positions = st.lists(st.integers(0, 10**6), min_size=1, max_size=5, unique=True)
    found = draw(st.dictionaries(words, positions.map(lambda some: tuple(sorted(some)))))
    return Words(
        draw(lengths), tuple(sorted(found.items(), key=lambda entry: (entry[1], entry[0])))
    )


replaced = st.builds(ReplacedField, lengths, st.lists(words, unique=True).map(tuple))


def tuples_of(some: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(some, max_size=3).map(tuple)


versions = st.builds(
    DocumentVersion,
    collection=texts,
    id=texts,
    fields=tuples_of(st.none() | fields()),
    values=tuples_of(values),
    stored=st.binary(max_size=10),
    deleted=st.booleans(),
    replaced=st.none() | tuples_of(st.none() | replaced),
)
