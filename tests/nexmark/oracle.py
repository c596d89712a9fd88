"""The Nexmark queries in SQL: DuckDB computes their results from a file of events.

An event has the watermark at its arrival, and the one before it. So the SQL decides which events
are late. Names of columns are those of the outputs of the flows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from tests.nexmark.generator import MAX_DELAY

COLUMNS = {
    **dict.fromkeys(("id", "time", "person", "auction", "seller", "category"), "BIGINT"),
    **dict.fromkeys(("reserve", "expires", "bidder", "price"), "BIGINT"),
    **dict.fromkeys(("kind", "name", "city", "state", "currency"), "VARCHAR"),
    "rate": "DOUBLE",
}

RECORDS = """
    CREATE TABLE records AS
    FROM read_json($file, format = 'newline_delimited', columns = $columns)
"""

MACROS = """
    CREATE MACRO iso_us(time) AS
        replace(strftime(make_timestamp(time), '%Y-%m-%dT%H:%M:%S.%fZ'), '.000000Z', 'Z');
    CREATE MACRO iso(time) AS iso_us(1000000 * time);
"""

VIEWS = f"""
    CREATE TABLE events AS
    SELECT *, lag(watermark, 1, 0) OVER (ORDER BY id) AS watermark_before
    FROM (SELECT *, max(time) OVER (ORDER BY id) - {MAX_DELAY} AS watermark FROM records);

    CREATE VIEW persons AS FROM events WHERE kind = 'person';
    CREATE VIEW auctions AS FROM events WHERE kind = 'auction';
    CREATE VIEW bids AS FROM events WHERE kind = 'bid';
    CREATE VIEW rates AS FROM events WHERE kind = 'rate';

    CREATE VIEW winners AS
    SELECT auctions.* REPLACE (bids.price AS price, bids.bidder AS bidder)
    FROM bids ASOF JOIN auctions ON bids.auction = auctions.auction AND bids.time >= auctions.time
    WHERE bids.time < auctions.expires
        AND bids.price >= auctions.reserve
        AND bids.watermark_before < auctions.expires
    QUALIFY 1 = row_number() OVER (
        PARTITION BY bids.auction ORDER BY bids.price DESC, bids.time, bids.id
    );
"""

QUERIES = {
    "q0": "SELECT id, kind, time, auction, bidder, price FROM bids",
    "q1": "SELECT id, kind, time, auction, bidder, price * 0.908::DOUBLE AS price FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE auction % 5 = 0",
    "q3": """
        SELECT persons.name, persons.city, persons.state, auctions.auction
        FROM persons JOIN auctions ON persons.person = auctions.seller
        WHERE auctions.category = 10 AND persons.state IN ('OR', 'ID', 'CA')
    """,
    "q4": """
        SELECT category AS key, iso(start) AS start, iso(start + 60) AS end, avg(price) AS average
        FROM (SELECT *, expires - expires % 20 - unnest([0, 20, 40]) AS start FROM winners)
        GROUP BY category, start
    """,
    "q5": """
        SELECT auction AS key, iso(start) AS start, iso(start + 10) AS end, count(*) AS bids
        FROM (SELECT *, time - time % 2 - unnest([0, 2, 4, 6, 8]) AS start FROM bids)
        WHERE start + 10 > watermark
        GROUP BY auction, start
        QUALIFY 1 = rank() OVER (PARTITION BY start ORDER BY count(*) DESC)
    """,
    "q6": """
        SELECT seller, avg(price) OVER (
            PARTITION BY seller ORDER BY expires ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
        ) AS average
        FROM winners
    """,
    "q7": """
        SELECT id, kind, time, auction, bidder, price
        FROM (SELECT *, time - time % 10 AS start FROM bids)
        WHERE start + 10 > watermark
        QUALIFY 1 = rank() OVER (PARTITION BY start ORDER BY price DESC)
    """,
    "q8": """
        SELECT person, iso(start) AS start
        FROM (SELECT person, watermark, time - time % 10 AS start FROM persons)
        JOIN (SELECT DISTINCT seller AS person, time - time % 10 AS start FROM auctions)
            USING (person, start)
        WHERE start + 10 > watermark
    """,
    "q9": """
        SELECT id, kind, time, auction, seller, category, reserve, currency, expires, bidder, price
        FROM winners
    """,
    "q11": """
        SELECT bidder AS key, iso(min(time)) AS start, iso(max(time) + 10) AS end, count(*) AS bids
        FROM (
            SELECT bidder, time, sum(begins::INT) OVER (ORDER BY bidder, time, id) AS session
            FROM (
                SELECT *, time - lag(time, 1, 0) OVER (
                    PARTITION BY bidder ORDER BY time, id
                ) > 10 AS begins
                FROM bids
            )
        )
        GROUP BY bidder, session
    """,
    "proceeds": """
        SELECT winners.auction, winners.price * latest.rate AS amount
        FROM winners ASOF LEFT JOIN (
            FROM rates
            QUALIFY 1 = row_number() OVER (PARTITION BY currency, time ORDER BY id DESC)
        ) AS latest
        ON winners.currency = latest.currency AND winners.expires >= latest.time
    """,
}

Q12 = """
    SELECT bidder AS key, iso_us(start) AS start, iso_us(start + $size) AS end, count(*) AS bids
    FROM (SELECT *, time - time % $size AS start FROM records)
    GROUP BY bidder, start
"""

OCCURRENCES = {
    "events after one with a later time": """
        SELECT max(time) OVER (ORDER BY id) > time AS found FROM events
    """,
    "bids late for a window": "SELECT time - time % 10 + 10 <= watermark AS found FROM bids",
    "persons late for the window of their first auction": """
        SELECT persons.time - persons.time % 10 + 10 <= persons.watermark AS found
        FROM persons JOIN auctions ON persons.person = auctions.seller
            AND persons.time - persons.time % 10 = auctions.time - auctions.time % 10
    """,
    "bids before the arrival of their auction": """
        SELECT bids.id < auctions.id AND bids.time >= auctions.time AS found
        FROM bids JOIN auctions USING (auction)
    """,
    "highest bids that arrive after the end of their auction": """
        SELECT bids.watermark_before >= winners.expires AS found
        FROM bids JOIN winners ON bids.auction = winners.auction AND bids.price > winners.price
            AND bids.time >= winners.time AND bids.time < winners.expires
    """,
    "equal highest bids in a window": """
        SELECT count(*) OVER (PARTITION BY time - time % 10) > 1 AS found
        FROM (FROM bids QUALIFY 1 = rank() OVER (PARTITION BY time - time % 10 ORDER BY price DESC))
    """,
    "sellers with more than ten sold auctions": """
        SELECT count(*) > 10 AS found FROM winners GROUP BY seller
    """,
}
"""Cases that the events must contain, so that the queries depend on them."""

Row = dict[str, Any]


def results_of(events: Path) -> dict[str, list[Row]]:
    """Return the rows of each query but Q12."""
    with _opened(events) as connection:
        connection.execute(VIEWS)
        return {name: _rows(connection, query) for name, query in QUERIES.items()}


def occurrences_in(events: Path) -> dict[str, int]:
    """Return how often each of OCCURRENCES is found."""
    with _opened(events) as connection:
        connection.execute(VIEWS)
        return {
            name: sum(row["found"] for row in _rows(connection, query))
            for name, query in OCCURRENCES.items()
        }


def windows_of(arrivals: Path, size_us: int) -> list[Row]:
    """Return the rows of Q12 for bids whose time is that of their arrival, in microseconds."""
    with _opened(arrivals) as connection:
        return _rows(connection, Q12, {"size": size_us})


def _opened(records: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(MACROS)
    return connection.execute(RECORDS, {"file": str(records), "columns": COLUMNS})


def _rows(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: Row | None = None
) -> list[Row]:
    cursor = connection.execute(query, parameters)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
