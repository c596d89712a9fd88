"""Flows as users write them: functions are deterministic, but not careful."""

ALL = {
    "mutable_value": "tests.careless.changed:mutable_value",
    "mutable_list": "tests.careless.changed:mutable_list",
    "mutable_everywhere": "tests.careless.changed:mutable_everywhere",
    "mutable_fold": "tests.careless.changed:mutable_fold",
    "changed_argument": "tests.careless.changed:changed_argument",
    "changed_and_raised": "tests.careless.changed:changed_and_raised",
    "branches": "tests.careless.changed:branches",
    "changed_by_key": "tests.careless.changed:changed_by_key",
    "types": "tests.careless.odd_types:types",
    "odd_keys": "tests.careless.odd_types:odd_keys",
    "equal_keys": "tests.careless.odd_types:equal_keys",
    "leaving": "tests.careless.mistakes:leaving",
    "fields": "tests.careless.mistakes:fields",
    "sets": "tests.careless.mistakes:sets",
    "stop_iteration": "tests.careless.mistakes:stop_iteration",
    "misused": "tests.careless.mistakes:misused",
    "nested": "tests.careless.mistakes:nested",
    "objects": "tests.careless.odd_types:objects",
    "shared": "tests.careless.odd_types:shared",
    "any_case": "tests.careless.odd_types:any_case",
    "prices": "tests.careless.odd_types:prices",
    "yielded": "tests.careless.changed:yielded",
}
"""Module of each flow, by name."""
