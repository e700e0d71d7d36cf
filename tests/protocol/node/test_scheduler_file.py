"""The scheduler file: written in one step, read with clear errors, removed by its owner."""

import json
from pathlib import Path

import pytest

from raddle.protocol.errors import StartError
from raddle.protocol.node.scheduler_file import SchedulerFile, read, remove, write

MINE = SchedulerFile("Scheduler-1", "tcp://10.0.0.5:8786", None)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    write(str(path), MINE)
    assert read(str(path)) == MINE
    assert json.loads(path.read_text()) == {
        "type": "Scheduler",
        "id": "Scheduler-1",
        "address": "tcp://10.0.0.5:8786",
        "workers": {},
        "services": {},
    }
    assert list(tmp_path.iterdir()) == [path]


def test_the_secret_s_file_is_named_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write("scheduler.json", MINE._replace(secret_file="key"))
    assert read("scheduler.json").secret_file == str(tmp_path / "key")


def test_others_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    write(str(path), MINE)
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"cannot write .*No such file"):
        write(str(tmp_path / "none" / "scheduler.json"), MINE)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"cannot read .*No such file"):
        read(str(tmp_path / "scheduler.json"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"id": "x"}', "\0"])
def test_a_file_that_is_something_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text(text)
    with pytest.raises(StartError, match="is not a scheduler file"):
        read(str(path))


def test_only_its_owner_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    write(str(path), MINE)
    remove(str(path), "Scheduler-2")
    assert path.exists()
    remove(str(path), MINE.id)
    assert not path.exists()
    remove(str(path), MINE.id)
