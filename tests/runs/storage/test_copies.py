"""Folders of copies, which are removed with their process."""

from pathlib import Path

import pytest

from valueshare.errors import InvalidInput
from valueshare.runs.storage import copies
from valueshare.runs.storage.copies import reading_copies, stored_config, working_copy
from valueshare.runs.storage.locations import Url
from valueshare.runs.storage.stores import Store


def test_copies_go_and_what_was_left_goes_too(url: Url, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with working_copy(url) as copy:
        (above,) = tmp_path.iterdir()
        assert above.stat().st_mode & 0o077 == 0
        assert copy.folder.name == "run"
        assert not copy.folder.exists()
        left = above / "copy-left"
        left.mkdir()
        monkeypatch.setattr(copies, "YOUNG_SECONDS", -1.0)
        with working_copy(url) as second:  # takes away what is nobody's, and not what is held
            assert not left.exists()
            assert copy.folder.parent.exists()
            assert second.folder.parent != copy.folder.parent
    assert list(above.iterdir()) == []
    with pytest.raises(InvalidInput, match=f"{url} is wrong$"), working_copy(url) as copy:
        raise InvalidInput(f"{copy.folder} is wrong")
    assert stored_config(url) is None
    Store(url).write("config.json", b'{"a": 1}')
    assert stored_config(url) == {"a": 1}
    with reading_copies([url, tmp_path]) as reading:
        assert (reading.folders[0] / "config.json").read_bytes() == b'{"a": 1}'
        assert reading.folders[1] == tmp_path
    assert list(above.iterdir()) == []
