"""Files of results from anybody: measured first, refused in one line, and read if they fit."""

import io
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from valueshare import result_files
from valueshare.analysis import read_results
from valueshare.errors import InvalidInput
from valueshare.result_files import SizeLimit, Unreadable, read_arrays, read_csv, read_parquet

ROWS = 1_000
TABLE = pl.DataFrame(
    {"env": ["a"] * ROWS, "algorithm": ["dqn"] * ROWS, "seed": range(ROWS), "step": [0] * ROWS}
).with_columns(score=pl.lit(1.0))


def test_parquet_is_refused_by_its_metadata(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    TABLE.write_parquet(file)
    assert read_parquet(file).equals(TABLE)
    with pytest.raises(InvalidInput, match=r"\(1,000 rows\), and at most 10.0 kB are read: write "):
        read_parquet(file, SizeLimit("10 kB"))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(Unreadable, match="it does not end as a Parquet file does"):
        read_parquet(file)


def test_what_is_said_to_write_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    TABLE.write_csv(file)
    with pytest.raises(InvalidInput, match="are read: write `max_result_size = 1MB`") as caught:
        read_results(file, max_result_size=1_000)
    enough = str(caught.value).split()[-1].strip("`")
    assert read_results(file, max_result_size=enough).table.height == ROWS


def test_the_limit_is_of_all_files_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        TABLE.with_columns(algorithm=pl.lit(name)).write_parquet(tmp_path / f"{name}.parquet")
    one = SizeLimit()
    read_parquet(tmp_path / "a.parquet", one)
    limit = int(1.5 * one._taken)
    read_results(tmp_path / "a.parquet", max_result_size=limit)
    with pytest.raises(InvalidInput, match=r"b.parquet would take .* of other results, and at mos"):
        read_results(tmp_path, max_result_size=limit)


def test_what_does_not_fit_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TABLE.write_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(result_files, "free_bytes", lambda: 1_000)
    with pytest.raises(InvalidInput, match=r"needs about .* and 1.0 kB are free"):
        read_results(tmp_path)


def test_memory_is_that_of_all_files_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is held once when it is read, which `free_bytes` shows; all are copied later."""
    limit, free = SizeLimit("100GB"), 10**9
    monkeypatch.setattr(result_files, "free_bytes", lambda: free)
    for name in "abc":
        limit.take(Path(name), 10**8)
        free -= 10**8
    # 3 x 400 MB are needed, of which 300 MB are held already.
    with pytest.raises(InvalidInput, match=r"900.0 MB of memory beside 300.0 MB .* 700.0 MB are free"):
        limit.take(Path("d"), 10**8)


def test_tables_with_too_many_columns_and_packed_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(",".join(map(str, range(5_000))) + "\n")
    with pytest.raises(InvalidInput, match="has 5,000 columns and at most 1,000 are read"):
        read_csv(tmp_path / "wide.csv", ",")
    (tmp_path / "packed.csv").write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(InvalidInput, match="is compressed: unpack it first"):
        read_csv(tmp_path / "packed.csv", ",")


def npz(file: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file


def array(values: np.ndarray, shape: tuple[int, ...] | None = None, kind: str = "<f8") -> bytes:
    """An array in NumPy's format, whose header says what it is told to."""
    buffer = io.BytesIO()
    about = {"descr": kind, "fortran_order": False, "shape": shape or values.shape}
    np.lib.format.write_array_header_1_0(buffer, about)
    return buffer.getvalue() + values.tobytes()


VALUES = np.arange(6.0).reshape(2, 3)


def test_arrays_are_those_that_numpy_wrote(tmp_path: Path) -> None:
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", c=VALUES, fortran=np.asfortranarray(VALUES), n=np.arange(3))
        for name, found in zip(
            ("c", "fortran", "n"),
            read_arrays(tmp_path / "a.npz", ("c", "fortran", "n")),
            strict=True,
        ):
            assert np.array_equal(found, np.arange(3) if name == "n" else VALUES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (array(VALUES, (10**15, 3)), r"says it has 24,000.0 TB and has 0.0 kB"),
        (array(VALUES, (1, 3)), "says it has 0.0 kB and has 0.0 kB"),
        (array(VALUES, (-2, -3)), "says it has"),
        (array(VALUES, kind="|O"), "cannot be read without pickle"),
        (b"no array", "is not an array of NumPy's"),
        (b"", "is not an array of NumPy's"),
    ],
)
def test_headers_of_arrays_that_lie_are_found_out(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_arrays(npz(tmp_path / "a.npz", a=content), ["a"])


def test_a_small_archive_of_a_large_array_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    file = npz(tmp_path / "a.npz", a=array(np.zeros(10**6)))  # 8 MB
    assert file.stat().st_size < 20_000
    with pytest.raises(InvalidInput, match=r"would take 8.0 MB .* write `max_result_size = 8MB`"):
        read_arrays(file, ["a"], SizeLimit("1MB"))


def test_a_page_on_which_polars_panics_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exception is not an `Exception`, and would pass every handler."""
    pl.DataFrame({"a": [1, 2]}).write_parquet(tmp_path / "a.parquet")

    def panic(*_: object, **__: object) -> None:
        raise pl.exceptions.PanicException("assertion failed")

    monkeypatch.setattr(pl, "read_parquet", panic)
    with pytest.raises(Unreadable, match=r"a.parquet cannot be read: Polars fails on a page of it"):
        read_parquet(tmp_path / "a.parquet")


@pytest.mark.parametrize("folder", ["a[1]", "a*", "a?", "~"])
def test_names_are_literal(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Polars would read a1/ for a[1]/, and the home folder for ~.
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate((folder, "a1")):
        Path(name).mkdir()
        table = pl.DataFrame({"score": [number]})
        table.write_parquet(tmp_path / name / "t.parquet")
        (tmp_path / name / "t.csv").write_text(f"score\n{number}\n")
    assert read_parquet(Path(folder) / "t.parquet")["score"].to_list() == [0]
    assert read_csv(Path(folder) / "t.csv", ",")["score"].to_list() == [0]
