"""A service is killed while clients write and follow, and is started again."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from driftline import IndexClient, IndexProducer
from driftline.index.client import Line, Written
from tests.index.client.serving import Serving
from tests.index.truth.service import served


def test_a_killed_service_has_each_write_once_when_it_is_back(tmp_path: Path) -> None:
    bulk: list[Line] = [{"id": f"b{n}", "year": n} for n in range(2500)]
    serving = Serving(tmp_path)
    with (
        served(serving),
        IndexClient(serving.url, token=serving.token) as client,
        IndexClient(serving.url, token=serving.token) as reader,
    ):
        begin = client.put("begin", {}).label
        changes = reader.changes(begin)
        sending = Thread(target=_send, args=(serving, 2500))
        sending.start()
        labels: list[str] = []
        again = Thread()
        again.start()
        for number, result in enumerate(client.bulk(bulk)):
            if number in (400, 1700):
                again.join()
                serving.kill()
                again = Thread(target=serving.start)
                again.start()
            assert isinstance(result, Written), result
            labels.append(result.label)
        single = client.put("one", {"year": 1}, if_label="none")
        sending.join()
        again.join()
        told = [next(changes) for _ in range(5001)]
        assert len({each.label for each in told}) == 5001
        assert [each.label for each in told] == sorted(each.label for each in told)
        by_kind = {kind: [each for each in told if each.id[0] == kind] for kind in "bpo"}
        assert sorted(each.label for each in by_kind["b"]) == sorted(labels)
        assert {each.id for each in by_kind["b"]} == {f"b{n}" for n in range(2500)}
        assert [each.id for each in by_kind["p"]] == [f"p{n}" for n in range(2500)]
        assert [each.label for each in by_kind["o"]] == [single.label]


def _send(serving: Serving, count: int) -> None:
    with IndexProducer(serving.zmq, "sender") as producer:
        for n in range(count):
            producer.put(f"p{n}", {"year": n})
