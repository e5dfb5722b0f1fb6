"""Records of delimited text: whole at any block size; open quotes are errors; nothing grows without end."""

import csv
import io
import re
import time
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairmf.data import read_csv as csv_reader
from fairmf.data.read_csv import read_csv, text_rows
from fairmf.data.text_source import TextSource, record_blocks
from fairmf.errors import InvalidData

# Fields that are hard to cut: line breaks, quotes and delimiters, at the ends and doubled.
FIELD = st.text('ab,";\n\r é', max_size=8) | st.sampled_from(["", '"', '""', '"\n', "\n", "\r\n", '12" LP', '",\n"'])


def source_of(text):
    content = text if isinstance(text, bytes) else text.encode()
    return TextSource("the text", len(content), lambda: io.BytesIO(content))


def unquoted(field):
    """A field as a careless writer has it: quoted only where it must be, so that 12" LP keeps its quote."""
    if field.startswith('"') or set(field) & set(",\n\r"):
        return '"' + field.replace('"', '""') + '"'
    return field


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(FIELD, min_size=2, max_size=3), min_size=1, max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(3, 40),
    st.booleans(),
    st.sampled_from([csv.QUOTE_ALL, None]),
)
@example([["a", "b\nc"], ["d", '"']], "\n", 3, False, None)
def test_records_are_those_of_pythons_csv_module_for_every_block_size(rows, newline, size, ends, quoting):
    if quoting is None:
        text = newline.join(",".join(map(unquoted, row)) for row in rows) + newline * ends
    else:
        written = io.StringIO(newline="")
        csv.writer(written, quoting=quoting, lineterminator=newline).writerows(rows)
        text = written.getvalue()
    expected = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    assert expected == [row for row in rows if row]
    blocks = list(record_blocks(source_of(text), size, b","))
    found = [row for block in blocks for row in csv.reader(io.StringIO(block.text.decode(), newline="")) if row]
    assert found == expected
    assert "".join(block.text.decode() for block in blocks).removesuffix("\n") == text.removesuffix("\n")
    line = 1
    for block in blocks:
        assert block.line == line
        line += len(re.findall("\r\n|\r|\n", block.text.decode()))


@pytest.mark.parametrize("least", [0, 1 << 60])
@pytest.mark.parametrize("encoding", ["utf8", "utf-16"])
def test_every_alignment_of_line_breaks_in_an_unused_column(least, encoding, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "_PLAIN_FROM_BYTES", least)
    monkeypatch.setattr(csv_reader, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(csv_reader, "_PLAIN_BLOCK_BYTES", 64)
    body = "".join(f'{k % 7},{k % 5},"{k}: said\n9,9,""so""\n\n1,2"\n' for k in range(20))
    for shift in range(0, 64, 9):
        path = tmp_path / "a.csv"
        path.write_text("user,item," + "c" * shift + "\n" + body, encoding=encoding)
        events = read_csv(path, encoding=encoding)
        assert len(events) == 20
        assert events.user_ids.values.tolist() == list(range(7))
        assert events.item_ids.values.tolist() == list(range(5))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(FIELD, min_size=2, max_size=2), min_size=1, max_size=8), st.integers(8, 64))
def test_ids_with_line_breaks_are_read_whole(tmp_path_factory, rows, size):
    path = tmp_path_factory.getbasetemp() / "ids.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["user", "item"], *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reader, "_BLOCK_BYTES", size)
        events = read_csv(path, text_ids=True, delimiter=",")
    found = zip(events.user_ids.values[events.users], events.item_ids.values[events.items], strict=True)
    assert [list(row) for row in found] == rows


@pytest.mark.parametrize("least", [0, 1 << 60])
@pytest.mark.parametrize("block", [16, 100, 1 << 20])
@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ('u500,"i500,x\n', "line 501 of .* is never closed"),
        ('u500,i500,"x""\n', "line 501 of .* is never closed"),
        ('u500,i500,"x\nu501,i501,"y"\n', "line 501 of .* closed inside a value in line 502"),
        ('u500,i500,"x"y\n', "line 501 of .* closed inside a value in line 501"),
        ('u500,i500,"two\nlines" \n', "line 501 of .* closed inside a value in line 502"),
    ],
)
def test_a_quote_that_is_not_closed_is_said_with_its_line(least, block, odd, words, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "_PLAIN_FROM_BYTES", least)
    monkeypatch.setattr(csv_reader, "_BLOCK_BYTES", block)
    monkeypatch.setattr(csv_reader, "_PLAIN_BLOCK_BYTES", block)
    rows = [f"u{k},i{k},x\n" for k in range(1000)]
    rows[499] = odd
    (tmp_path / "a.csv").write_text("user,item,note\n" + "".join(rows))
    with pytest.raises(InvalidData, match=words):
        read_csv(tmp_path / "a.csv")


def test_an_open_quote_is_given_up_before_the_whole_file_is_in_memory(monkeypatch):
    monkeypatch.setattr("fairmf.data.text_source._LONGEST_RECORD", 1000)
    reads = []

    class Endless:
        def read(self, size):
            reads.append(size)
            return b'user,item\nu1,"i1\n' if len(reads) == 1 else b"u2,i2\n" * 10

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    with pytest.raises(InvalidData, match="A quote opened in line 2 of it is never closed"):
        list(record_blocks(TextSource("it", 1, Endless), 64, b","))
    assert len(reads) < 30


def test_a_line_without_an_end_is_an_error(monkeypatch):
    monkeypatch.setattr("fairmf.data.text_source._LONGEST_RECORD", 1000)
    with pytest.raises(InvalidData, match="The record in line 2 of the text is longer than"):
        list(record_blocks(source_of("a,b\n" + "x," * 5000), 64, b","))


@pytest.mark.parametrize("place", ["first", "second", "only"])
def test_a_million_columns_are_an_error_at_once(place, tmp_path):
    wide = b",".join([b"7"] * 10**6)
    lines = {"first": [wide, b"1,2"], "second": [b"user,item", wide], "only": [wide]}[place]
    (tmp_path / "a.csv").write_bytes(b"\n".join(lines))
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises(InvalidData, match=r"1,?000,?000"):
            read_csv(tmp_path / "a.csv", header=place == "second", user=0 if place != "second" else "user",
                     item=1 if place != "second" else "item")  # fmt: skip
        assert time.perf_counter() - start < 1
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


def test_many_columns_are_still_read(tmp_path):
    names = ["user", "item", *(f"c{k}" for k in range(5000))]
    (tmp_path / "a.csv").write_text("".join(",".join(row) + "\n" for row in (names, ["1"] * 5002, ["2"] * 5002)))
    assert read_csv(tmp_path / "a.csv").user_ids.values.tolist() == [1, 2]


@pytest.mark.parametrize("least", [0, 1 << 60])
@pytest.mark.parametrize("delimiter", ["::", "||", ", ", "<>", "§"])
def test_long_delimiters_are_kept_whole(least, delimiter, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "_PLAIN_FROM_BYTES", least)
    monkeypatch.setattr(csv_reader, "_BLOCK_BYTES", 64)
    cells = [["a:b", 'The "IV": x', "4"], ["c:d", '"c" | d', "5"], ["a:b:c:d:e:f", "e,f\x1f\x1e", "3"]] * 9
    (tmp_path / "a.dat").write_text("".join(delimiter.join(row) + "\n" for row in cells), encoding="utf-8")
    how = {"rating": 2, "rating_above": 3.5}
    events = read_csv(tmp_path / "a.dat", delimiter=delimiter, header=False, user=0, item=1, **how)
    assert len(events) == 18
    assert events.user_ids.values.tolist() == ["a:b", "c:d"]
    assert events.item_ids.values.tolist() == ['The "IV": x', '"c" | d']
    assert list(text_rows(source_of((tmp_path / "a.dat").read_bytes()), delimiter)) == cells


def test_a_row_of_another_width_is_said_with_its_line(tmp_path):
    (tmp_path / "a.csv").write_text('user,item\n1,"two\nlines"\n\n3,4\n5,6,7\n')
    with pytest.raises(InvalidData, match=r"line 6: Expected 2 columns, got 3"):
        read_csv(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text('user,item,w\n1,"two\nlines",3\n3,4,many\n')
    with pytest.raises(InvalidData, match=r"'w' must hold numbers.*line 4.*'many'"):
        read_csv(tmp_path / "a.csv", weights="w")
