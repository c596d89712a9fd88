"""Clients of an index: each does one thing after the other, comes again until it is answered, and
notes everything."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from threading import Event
from time import monotonic

import httpx

from driftline.serve.views.tokens import token_of
from tests.index.truth import samples
from tests.index.truth.notes import Answered, Notes, Sent, Watched, label_of
from tests.index.truth.running import Running

CLIENT_TIMEOUT_S = 90.0
"""So long a client comes again at most: a service that is killed all the time is away for less."""

CLIENT_RETRY_S = 0.1

OWN, SHARED = 25, 15
"""Ids of each client, and of all together."""

PAST = 200
"""So many T are remembered, to read as of them again."""

PAST_US = 300 * 1_000_000
"""An older T is not read again: a service under load would have dropped it before it answers."""

BEGINNING = 10**12
"""Before the first write T is less than this; it is not retained once there are later ones."""

COME_AGAIN = 429, 503


def connected(url: str) -> httpx.Client:
    """A client of HTTP; it needs no certificates, and to read them takes 20 ms."""
    return httpx.Client(base_url=url, timeout=30.0, trust_env=False, verify=False)


def watches_of(client: str) -> list[str]:
    """The watches that a client puts and removes."""
    return [f"{client}-a", f"{client}-b"]


class Client(Running):
    """One client: what it does is given by its seed, and by when it is answered."""

    def __init__(self, name: str, seed: int, url: str, notes: Notes, over: Event) -> None:
        super().__init__(name)
        self._chance = Random(f"{name} {seed}")
        self._url = url
        self._notes = notes
        self._over = over
        self._http = self._connected()
        self._marks = 0
        self._label = 0
        """Of its last write."""
        self._tried = 0
        """How often it has asked for anything."""
        self._past: deque[int] = deque(maxlen=PAST)
        self._newest = 0
        """T of its last read that did not ask for another one."""
        self._labels: dict[str, int] = {}
        """Of documents: a label that was theirs once."""

    def run(self) -> None:
        deeds: list[Callable[[], None]] = [
            *[self._put] * 5, self._delete, self._put_unsure, self._conditional, self._bulk,
            *[self._search] * 8, *[self._count] * 2, self._pages, *[self._get] * 3,
            self._by_its_words, *[self._watch] * 2,
        ]  # fmt: skip
        try:
            while not self._over.is_set():
                self._chance.choice(deeds)()
        finally:
            self._http.close()

    # Writes.

    def _put(self) -> None:
        """A write that is sent again until it is answered, with a key."""
        sent = self._new(self._own())
        answer = self._ask("PUT", sent.id, {"key": sent.mark}, sent.document)
        self._done(sent, answer.json())

    def _delete(self) -> None:
        sent = self._deletion(self._own())
        answer = self._ask("DELETE", sent.id, {"key": sent.mark})
        self._done(sent, answer.json())

    def _put_unsure(self) -> None:
        """A write of a document that others write, too; it is sent once."""
        sent = self._new(self._shared())
        try:
            answer = self._http.put(f"/documents/{sent.id}", json=sent.document)
        except httpx.TransportError:
            self._lost()
            return
        if answer.status_code == 200:
            self._done(sent, answer.json())
        elif answer.status_code not in COME_AGAIN:
            self._note_wrong(answer)

    def _conditional(self) -> None:
        """A write of a document as it was once; mostly of what is newest."""
        id = self._shared()
        expected = self._labels.get(id, 0)
        sent = self._new(id) if self._chance.random() < 0.8 else self._deletion(id)
        sent.expected = expected
        parameters = {"key": sent.mark, "if_label": token_of(expected) if expected else "none"}
        method = "PUT" if sent.kind == "put" else "DELETE"
        answer = self._ask(method, id, parameters, sent.document, also=409)
        if answer.status_code == 200:
            self._done(sent, answer.json())
            return
        there = answer.json()["error"]["label"]
        self._labels[id] = label_of(there) if there else 0
        if self._labels[id] == expected:
            self._notes.wrong.append(f"refused, though the condition held: {answer.text}")

    def _bulk(self) -> None:
        """Several writes in one request, some of them bad; all are sent again until all is well."""
        key = self._mark()
        ids = self._chance.sample(range(OWN), self._chance.randint(2, 8))
        lines: list[tuple[Sent | None, object]] = []
        for number in ids:
            id = f"{self.name}-{number}"
            if self._chance.random() < 0.2:
                lines.append((self._deletion(id), {"delete": id}))
            else:
                sent = self._new(id)
                lines.append((sent, {"id": id, **(sent.document or {})}))
            if self._chance.random() < 0.1:
                lines.append((None, {"id": "", "title": 7}))
        body = "".join(json.dumps(line) + "\n" for _, line in lines)
        until = monotonic() + CLIENT_TIMEOUT_S
        while not self._bulk_once(key, body, [sent for sent, _ in lines]):
            assert monotonic() < until, "a bulk is not answered"
            self._over.wait(CLIENT_RETRY_S)

    def _bulk_once(self, key: str, body: str, sent: list[Sent | None]) -> bool:
        try:
            answer = self._http.post("/documents:bulk", params={"key": key}, content=body)
        except httpx.TransportError:
            self._lost()
            return False
        if answer.status_code != 200:
            if answer.status_code not in COME_AGAIN:
                self._note_wrong(answer)
            return False
        lines = [json.loads(line) for line in answer.text.splitlines()]
        if len(lines) != len(sent):
            self._notes.wrong.append(f"{len(sent)} lines are answered by {len(lines)}: {lines}")
            return True
        well = True
        for each, line in zip(sent, lines, strict=True):
            if each is None:
                if "error" not in line:
                    self._notes.wrong.append(f"a bad line was taken: {line}")
            elif "error" not in line:
                if not each.label:
                    self._done(each, line)
            elif line["error"]["code"] in ("unavailable", "busy"):
                self._notes.refused["line"] += 1
                well = False
            else:
                self._notes.wrong.append(f"a good line was refused: {line}")
        return well

    def _watch(self) -> None:
        """A stored query is put in place of another one, or removed."""
        id = self._chance.choice(watches_of(self.name))
        self.watch(id, None if self._chance.random() < 0.3 else self._query())

    def watch(self, id: str, query: str | None) -> None:
        """Store a query, or remove it; it has no key, so it may be done several times."""
        since, tried = self._label, self._tried
        method, body = ("DELETE", None) if query is None else ("PUT", {"q": query})
        answer = self._ask(method, id, {}, body, path=f"/watches/{id}")
        label = label_of(answer.json()["label"])
        sure = self._tried == tried + 1
        self._notes.watched.append(Watched(id, query, label if sure else since, label))
        self._label = max(self._label, label)

    # Reads.

    def _search(self) -> None:
        query, sort, limit = self._query(), samples.sort(self._chance), self._chance.randint(1, 20)
        parameters: dict[str, str | int] = {"q": query, "limit": limit, **self._when()}
        if sort:
            parameters["sort"] = sort
        if facet := not sort and self._chance.random() < 0.2:
            parameters["facet"] = "tags"
        parameters["snippets"] = self._chance.randrange(2)
        found = self._read("search", parameters)
        self._note_found(found, query, sort, 0, limit, facet=facet)

    def _pages(self) -> None:
        """All hits of a query, page by page, as of one T."""
        query, sort, limit = self._query(), samples.sort(self._chance), self._chance.randint(3, 9)
        parameters: dict[str, str | int] = {"q": query, "limit": limit, "snippets": 0}
        if sort:
            parameters["sort"] = sort
        found = self._read("search", {**parameters, **self._when()})
        at, begin, ids = found["at"], 0, set()
        while True:
            hits = found["hits"]
            assert isinstance(hits, list)
            self._note_found(found, query, sort, begin, limit)
            ids |= {hit["id"] for hit in hits}
            begin += len(hits)
            if found["at"] != at:
                self._notes.wrong.append(f"a cursor of {at} has led to {found['at']}")
            if found["cursor"] is None:
                break
            found = self._read("search", {**parameters, "cursor": str(found["cursor"])})
        if not begin == len(ids) == found["total"]:
            counts = f"{begin} hits, {len(ids)} different, of {found['total']} on all pages"
            self._notes.wrong.append(f"{counts}: {parameters}")

    def _count(self) -> None:
        query = self._query()
        self._note_count(self._read("count", {"q": query, **self._when()}), query)

    def _get(self) -> None:
        id = self._own() if self._chance.random() < 0.5 else self._shared()
        when = self._when()
        answer = self._ask("GET", id, when, also=404)
        if answer.status_code == 404:
            if "at" in when:
                at = label_of(when["at"])
                self._notes.answered.append(Answered("get", at, id))
            return
        found = answer.json()
        self._check_after(when, found)
        label = label_of(found["label"])
        hits = ((id, 0.0, label),)
        at = label_of(found["at"])
        self._notes.answered.append(Answered("get", at, id, hits=hits, document=found["document"]))
        if id.startswith("s"):
            self._labels[id] = label

    def _by_its_words(self) -> None:
        """A document that was just written is found by each of its words from its label on."""
        sent = self._new(self._own())
        answer = self._ask("PUT", sent.id, {"key": sent.mark}, sent.document)
        self._done(sent, answer.json())
        for at, count in ((sent.label - 1, 0), (sent.label, 1)):
            for word in samples.words_of(sent.mark):
                found = self._read("count", {"q": word, "at": token_of(at)})
                self._note_count(found, word)
                if found["total"] != count:
                    self._notes.wrong.append(f"{word} as of {at} finds {found['total']}: {sent}")

    def _note_found(
        self,
        found: Mapping[str, object],
        query: str,
        sort: str,
        begin: int,
        limit: int,
        *,
        facet: bool = False,
    ) -> None:
        match found:
            case {"at": at, "total": int(total), "hits": list(hits), **rest}:
                pass
        counts = None
        if facet:
            facets = rest.get("facets", {})
            assert isinstance(facets, dict)
            counts = tuple((each["value"], each["count"]) for each in facets.get("tags", ()))
        places = tuple((hit["id"], hit["score"], label_of(hit["label"])) for hit in hits)
        answered = Answered(
            "search", label_of(at), query, sort, begin, limit, total, places, counts
        )
        self._notes.answered.append(answered)
        if answered.at > BEGINNING:
            self._past.append(answered.at)

    def _note_count(self, found: Mapping[str, object], query: str) -> None:
        total = found["total"]
        assert isinstance(total, int)
        at = label_of(found["at"])
        self._notes.answered.append(Answered("count", at, query, total=total))

    def _query(self) -> str:
        return samples.query(self._chance)

    def _when(self) -> dict[str, str | int]:
        """As of which T is read: now, after the last write, or a T of before."""
        match self._chance.randrange(4):
            case 0 if self._label:
                return {"after": token_of(self._label)}
            case 1 if past := [at for at in self._past if at > self._past[-1] - PAST_US]:
                return {"at": token_of(self._chance.choice(past))}
        return {}

    def _read(self, what: str, parameters: Mapping[str, str | int]) -> dict[str, object]:
        answer = self._ask("GET", "", parameters, path=f"/{what}")
        found: dict[str, object] = answer.json()
        self._check_after(parameters, found)
        return found

    def _check_after(
        self, parameters: Mapping[str, str | int], found: Mapping[str, object]
    ) -> None:
        at = label_of(found["at"])
        if not {"at", "cursor"} & parameters.keys():
            if at < self._newest:
                self._notes.wrong.append(f"as of {at}, though {self._newest} was to be seen before")
            self._newest = at
        if at < label_of(parameters.get("after", token_of(0))):
            self._notes.wrong.append(f"{parameters} is answered as of an earlier T: {found['at']}")
        if parameters.get("at", found["at"]) != found["at"]:
            self._notes.wrong.append(f"{parameters} is answered as of another T: {found['at']}")

    # What all do.

    def _ask(
        self,
        method: str,
        id: str,
        parameters: Mapping[str, str | int],
        document: Mapping[str, object] | None = None,
        *,
        also: int = 200,
        path: str = "",
    ) -> httpx.Response:
        """Ask again and again until there is an answer; `also`: the status of another good one."""
        until = monotonic() + CLIENT_TIMEOUT_S
        said = ""
        while monotonic() < until:
            self._tried += 1
            try:
                answer = self._http.request(
                    method, path or f"/documents/{id}", params=dict(parameters), json=document
                )
            except httpx.TransportError as error:
                self._lost()
                said = repr(error)
            else:
                if answer.status_code in (200, also):
                    return answer
                said = answer.text
                self._notes.refused[f"{answer.status_code}"] += 1
                if answer.status_code not in COME_AGAIN:
                    self._note_wrong(answer)
                    raise AssertionError(f"{method} {path or id} {parameters}: {said}")
            self._over.wait(CLIENT_RETRY_S)
        raise AssertionError(f"{method} {path or id} {parameters} is not answered: {said}")

    def _lost(self) -> None:
        """The connection is lost: the next one is another one."""
        self._notes.refused["connection"] += 1
        self._http.close()
        self._http = self._connected()

    def _connected(self) -> httpx.Client:
        return connected(self._url)

    def _note_wrong(self, answer: httpx.Response) -> None:
        request = answer.request
        text = f"{request.method} {request.url}: {answer.status_code} {answer.text}"
        self._notes.wrong.append(text)

    def _done(self, sent: Sent, answer: Mapping[str, object]) -> None:
        sent.absent = "absent" in answer
        sent.label = label_of(answer["label"])
        self._label = max(self._label, sent.label)
        self._past.append(sent.label)
        if sent.id.startswith("s"):
            self._labels[sent.id] = sent.label if sent.kind == "put" else 0

    def _new(self, id: str) -> Sent:
        mark = self._mark()
        return self._noted(Sent("put", id, mark, samples.document(self._chance, mark)))

    def _deletion(self, id: str) -> Sent:
        return self._noted(Sent("delete", id, self._mark(), None))

    def _noted(self, sent: Sent) -> Sent:
        self._notes.sent.append(sent)
        return sent

    def _mark(self) -> str:
        self._marks += 1
        return f"{self.name}q{self._marks}"

    def _own(self) -> str:
        return f"{self.name}-{self._chance.randrange(OWN)}"

    def _shared(self) -> str:
        return f"s{self._chance.randrange(SHARED)}"
