"""Records ``{"id": int, "key": str, "text": str}``, as the simulation makes them."""

Record = dict[str, object]


def words(record: Record) -> list[tuple[str, object]]:
    return [(word, record["id"]) for word in str(record["text"]).split()]
