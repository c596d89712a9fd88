"""The memory benchmark runs to its end, and its figures are those of real nodes."""

from driftline.bench.experiments.memory import Memory, measure_memory
from driftline.bench.measuring.corpus import load_documents


def test_memory_of_real_nodes_is_measured() -> None:
    found = measure_memory(load_documents(40), 2, 4.0, seed=1)
    assert found.documents == 40
    assert found.records > 100
    assert 10 < found.index_mib < 500
    assert 20 < found.early_mib < 1000
    assert found.late_mib > 20


def test_growth_is_what_the_end_has_more_than_the_beginning() -> None:
    assert Memory(1, 50.0, 10.0, 5, early_mib=100.0, late_mib=103.0).growth == 103.0 / 100.0 - 1
