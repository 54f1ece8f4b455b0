"""Folders of copies, which are removed with their process."""

from pathlib import Path

import pytest

from valueshare.errors import InvalidInput
from valueshare.runs.directory import staging_folder
from valueshare.runs.storage.copies import checkpoint_status, open_storage, reading_copies, stored_config
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.stores import Store


def test_copies_go_and_what_was_left_goes_too(url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with open_storage(url) as storage:
        (above,) = tmp_path.iterdir()
        assert above.stat().st_mode & 0o077 == 0
        assert storage.folder.name == "run"
        assert not storage.folder.exists()
        with staging_folder(above / "copy") as left:  # as of a process that was killed
            pass
        with open_storage(url) as second:  # takes away what is nobody's, and not what is held
            assert not left.exists()
            assert storage.folder.parent.exists()
            assert second.folder.parent != storage.folder.parent
    assert list(above.iterdir()) == []
    with pytest.raises(InvalidInput, match=f"{url} is wrong$"), open_storage(url) as storage:
        raise InvalidInput(f"{storage.folder} is wrong")
    assert stored_config(url) is None
    Store(url).write("config.json", b'{"a": 1}')
    assert stored_config(url) == {"a": 1}
    with reading_copies([url, tmp_path]) as reading:
        assert (reading.folders[0] / "config.json").read_bytes() == b'{"a": 1}'
        assert reading.folders[1] == tmp_path
    assert list(above.iterdir()) == []


def test_words_on_finished_phases_are_true(tmp_path: Path) -> None:
    """A phase is finished once its manifest is there: states and records alone are of one that was cut off."""
    store = Store(Url("memory://phases/run"))
    none, some = "no checkpoint yet", "all checkpoints are intact"
    folder = tmp_path / "checkpoints" / "population-0"
    folder.mkdir(parents=True)
    assert checkpoint_status(tmp_path) == checkpoint_status(store.url) == none
    for name, words in (("state-000000.safetensors", none), ("checkpoint-000000.json", some)):
        (folder / name).write_text("")
        store.write(f"checkpoints/population-0/{name}", b"")
        assert checkpoint_status(tmp_path) == checkpoint_status(store.url) == words
