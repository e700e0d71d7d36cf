"""Which task group a key belongs to."""

import pytest

from raddle.protocol.core.ids import Key, group_of

HEX = "60dfef54c1d22a9a0c4f6d1b7c9e8f10"


@pytest.mark.parametrize(
    ("key", "group"),
    [
        ("inc", "inc"),
        ("x1234", "x"),
        ("load_17", "load"),
        (("x3", 4), "x"),
        ("2024", "2024"),
        (f"inc-{HEX}", "inc"),
        (f"read-parquet-{HEX}", "read-parquet"),
        (f"read-parquet-{HEX}-part-7", "read-parquet"),
        ("inc-60dfef54", "inc"),
        ("inc-60dfefa", "inc-60dfefa"),  # too short for a token
        ("sum-3", "sum"),
        ("sum-3-4", "sum"),
        ((f"assign-{HEX}", 0), "assign"),
        ((f"assign-{HEX}", 0, "b-1"), "assign"),
        ((("x-1", 2), 3), "x"),
        (f"('assign-{HEX}', 0)", "assign"),
        ("('assign', 'b', 3)", "assign"),
        ('("assign-12", 0)', "assign"),
        (b"inc-1", "inc"),
        (b"\xff-1", "\ufffd"),
        (12, "task"),
        (1.5, "task"),
        ((), "task"),
        ((1, 2), "task"),
        ("", "task"),
        ("-1", "task"),
        ("()", "task"),
        ("DEADBEEF-1", "DEADBEEF"),
    ],
)
def test_group_of(key: Key, group: str) -> None:
    assert group_of(key) == group
