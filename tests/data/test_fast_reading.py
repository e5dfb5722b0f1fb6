"""The compiled ways to read many rows give what the general ways give: Arrow's reader, a dictionary, a set of pairs."""

import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairmf.data import plain_csv
from fairmf.data import read_csv as csv_reader
from fairmf.data.collect import EventsCollector
from fairmf.data.encode import IdEncoder, IntegerTable, TextTable
from fairmf.data.events import Events
from fairmf.data.interactions import Interactions
from fairmf.data.read import read_frame
from fairmf.data.read_csv import read_csv
from fairmf.data.sort_kernels import distinct_pairs
from fairmf.errors import InvalidData

NULLS = pyarrow.csv.ConvertOptions().null_values
NUMBERS = st.integers(-50, 50).map(str)
ODD_WORDS = ["-", "+5", " 7", "7 ", "007", "-0", "1.", ".5", "1e3", '"', '"a"', "é", "", "x", "1\r", "n"]
LONG_NUMBERS = ["9" * 18, "9" * 19, str(2**63 - 1), str(2**63), "123456789012345", "1234567890123456"]
DECIMALS = ["0.1", "3.5", "0.30000000000000004", "12345678.1234567", "0.000000000000001"]
ODD = st.sampled_from([*NULLS, *ODD_WORDS, *LONG_NUMBERS, *DECIMALS])


def outcome(path, **how):
    """What reading yields, or the error's text: for comparing two ways to read."""
    try:
        rows = read_csv(path, header=False, user=0, item=1, delimiter=",", **how)
    except InvalidData as error:
        return str(error)
    arrays = [rows.users, rows.items, rows.weights, rows.times]
    ids = [[(type(x), x) for x in found.values.tolist()] for found in (rows.user_ids, rows.item_ids)]
    return ids, [None if array is None else (array.dtype, array.tolist()) for array in arrays]


def both_ways(path, monkeypatch, **how):
    with monkeypatch.context() as patch:
        patch.setattr(csv_reader, "_PLAIN_FROM_BYTES", 0)
        fast = outcome(path, **how)
        patch.setattr(csv_reader, "_PLAIN_FROM_BYTES", 1 << 60)
        return fast, outcome(path, **how)


@pytest.mark.parametrize("header", [True, False])
def test_double_colons_both_ways(header, tmp_path, monkeypatch):
    rows = [(k % 7, k % 5 + 10, k % 3 / 2, 978300760 + k) for k in range(200)]
    text = "u::i::w::t\n" if header else ""
    (tmp_path / "a.dat").write_text(text + "".join("::".join(map(str, row)) + "\n" for row in rows))
    columns = dict(zip(("user", "item", "weights", "time"), "uiwt" if header else range(4), strict=True))
    found, ways = [], []
    real = csv_reader._collect
    monkeypatch.setattr(csv_reader, "_collect", lambda *a: ways.append(a[-1]) or real(*a))
    for least in (0, 1 << 60):
        monkeypatch.setattr(csv_reader, "_PLAIN_FROM_BYTES", least)
        events = read_csv(tmp_path / "a.dat", header=header, **columns)
        ids = events.user_ids.values[events.users], events.item_ids.values[events.items]
        found.append(list(zip(*(x.tolist() for x in (*ids, events.weights, events.times)), strict=True)))
    assert found == [rows, rows]
    assert ways == [True, False]  # the fast way did not give up


# Mostly plain rows with now and then something odd, so that both the cutting and the giving up are met.
FIELD = st.one_of(NUMBERS, NUMBERS, NUMBERS, st.text("ab:é", min_size=1, max_size=20), ODD)
ROWS = st.lists(st.tuples(NUMBERS | FIELD, NUMBERS | FIELD, NUMBERS | FIELD), min_size=1, max_size=12)


@pytest.mark.parametrize(
    "how", [{}, {"weights": 2}, {"time": 2}, {"rating": 2, "rating_above": 0.5}, {"text_ids": True}]
)
def test_any_text_is_read_as_arrow_reads_it(how, tmp_path, monkeypatch):
    path = tmp_path / "a.csv"

    @settings(max_examples=30, deadline=None)
    @given(ROWS, st.sampled_from(["\n", "\r\n"]), st.sampled_from([8, 64, 1 << 20]), st.booleans())
    @example([("1", "2", "0.5"), ("", "", ""), ("3", "NA", "7")], "\n", 64, True)
    def check(rows, newline, block, ends_with_newline):
        text = newline.join(",".join(row) for row in rows) + newline * ends_with_newline
        path.write_text(text, encoding="utf-8", newline="")
        monkeypatch.setattr(csv_reader, "_BLOCK_BYTES", max(block, 64))
        monkeypatch.setattr(csv_reader, "_PLAIN_BLOCK_BYTES", block)
        fast, general = both_ways(path, monkeypatch, **how)
        assert fast == general

    check()


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("1,2,3.25\n-4,0,0.1\n1,5,123456.789\n", {"weights": 2}),
        ("u1,2,9\n\n\nu2,3,10\nu1,2,11", {"time": 2}),
        ("u1,ab c,4.0\r\nü2,d,2.5\r\n", {"rating": 2, "rating_above": 3.5}),
        ("aa,b,4\nlonger than a word,c,1\nd,a text of many words,5\ne,b,2\nd,c,4\n", {"rating": 2, "rating_above": 3}),
        ("\ufeff1,2,3\n4,5,6\n", {}),
        ("1,x,3\nNAN1,x,3\nnul,NA0,1\n", {}),
    ],
)
def test_plain_files_are_indeed_read_by_the_fast_reader(text, how, tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8", newline="")
    cut = []
    original = plain_csv.PlainColumns.cut
    monkeypatch.setattr(plain_csv.PlainColumns, "cut", lambda *given: cut.append(original(*given)) or cut[-1])
    fast, general = both_ways(path, monkeypatch, **how)
    assert fast == general
    assert cut, "the fast reader was not used"
    assert not isinstance(fast, str)


NO_INTEGERS = ['1,"2"\n', "1,2\n3\n", "1,2\n3,4,5\n", "1,NA\n2,3\n", "1,\n", f"{10**18},1\n", "1,2\r3,4\n", "1, 2\n"]
RAGGED = ["1,2\n3\n4,5\n6\n", "1,2,3\n4\n", "1\n2\n"]
NO_TEXTS = ["a,b\n\xff,c\n", "a,\n", ",b\n", "a,b\nc,NA\n", "a,null\n", "a,b,c\nd\n", "a\nb\n", '"a",b\n']


@pytest.mark.parametrize(
    ("text", "kind"), [(x, "int64") for x in NO_INTEGERS + RAGGED] + [(x, "string") for x in NO_TEXTS + RAGGED]
)
def test_the_fast_reader_gives_up_at_the_first_doubt(text, kind):
    with pytest.raises(plain_csv.NotPlain):
        plain_csv.PlainColumns(2, {0: (0, kind), 1: (1, kind)}, ",").cut(text.encode("latin-1"))


@settings(deadline=None, max_examples=60)
@given(st.from_regex(r"-?[0-9]{1,17}([.][0-9]{1,17})?", fullmatch=True))
@example("0.30000000000000004")
@example("9007199254740993.1")
@example("123456789.123456789")
def test_decimals_are_exact_or_left_to_arrow(text):
    columns = plain_csv.PlainColumns(2, {0: (0, "double"), 1: (1, "int64")}, ",")
    digits = sum(letter.isdigit() for letter in text)
    try:
        found = columns.cut(f"{text},1\n".encode())[0].to_pylist()
    except plain_csv.NotPlain:
        assert digits > 15
        return
    assert digits <= 15
    assert found == [float(text)]


def test_headers_and_compression(tmp_path, monkeypatch):
    import gzip

    monkeypatch.setattr(csv_reader, "_PLAIN_FROM_BYTES", 0)
    text = b'"user","item",other\n' + b"".join(b"u%d,%d,x\n" % (k % 7, k % 5) for k in range(500))
    (tmp_path / "a.csv").write_bytes(text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text))
    for name in ("a.csv", "a.csv.gz"):
        rows = read_csv(tmp_path / name)
        assert rows.user_ids.values.tolist() == [f"u{k}" for k in range(7)]
        assert rows.items.tolist() == [k % 5 for k in range(500)]


def test_a_late_surprise_starts_over_with_arrow(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(csv_reader, "_PLAIN_BLOCK_BYTES", 50)
    path = tmp_path / "a.csv"
    path.write_text("\n".join([f"{k},{k % 3}" for k in range(100)] + ['"x, y",1']))
    fast, general = both_ways(path, monkeypatch)
    assert fast == general
    assert fast[0][0][-1] == (str, "x, y")


def test_batches_keep_their_order_when_items_take_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "_PLAIN_FROM_BYTES", 0)
    monkeypatch.setattr(csv_reader, "_PLAIN_BLOCK_BYTES", 64)
    original, seen = EventsCollector._add_ids, []

    def slow_at_first(self, role, *rest):
        if role == "item":
            seen.append(role)
            time.sleep(0.3 if len(seen) == 1 else 0)
        original(self, role, *rest)

    monkeypatch.setattr(EventsCollector, "_add_ids", slow_at_first)
    path = tmp_path / "a.csv"
    path.write_text("user,item\n" + "".join(f"{k},{k}\n" for k in range(100)))
    assert read_csv(path).item_ids.values.tolist() == list(range(100))
    assert len(seen) > 5


# -- ids ----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.lists(st.text(max_size=20), max_size=30), max_size=5))
def test_texts_are_numbered_as_by_a_dictionary(batches):
    encoder, expected = IdEncoder("user", many=True), {}
    for batch in batches:
        codes = [expected.setdefault(text, len(expected)) for text in batch]
        assert encoder.encode(pa.array(batch, type=pa.string())).tolist() == codes
        assert encoder.encode(pa.array(["?", *batch], type=pa.large_string())[1:]).tolist() == codes
    assert encoder.ids().values.tolist() == list(expected)
    if any(batches):
        assert isinstance(encoder._table, TextTable)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), max_size=30), max_size=5))
def test_integers_are_numbered_as_by_a_dictionary(batches):
    encoder, expected = IdEncoder("user", many=True), {}
    for batch in batches:
        codes = [expected.setdefault(value, len(expected)) for value in batch]
        assert encoder.encode(pa.array(batch, type=pa.int64())).tolist() == codes
    assert encoder.ids().values.tolist() == list(expected)


@pytest.mark.parametrize("name", [str, int])
def test_tables_grow(name):
    rng = np.random.default_rng(0)
    values = [name(k) for k in rng.permutation(40_000).tolist() + rng.integers(0, 40_000, 5000).tolist()]
    longest = ["x" * 300_000] if name is str else [2**62]  # longer than all room there is
    expected = {}
    codes = [expected.setdefault(value, len(expected)) for value in values + longest]
    table = TextTable() if name is str else IntegerTable()
    assert table.encode(pa.array(values + longest)).tolist() == codes
    assert table.ids().tolist() == list(expected)


def test_texts_that_differ_only_in_closing_bytes_are_different():
    texts = ["", "\0", "\0\0", "a", "a\0", "abcdefgh", "abcdefgh\0", "abcdefg", "ÿ"]
    encoder = IdEncoder("user", many=True)
    assert encoder.encode(pa.array(texts)).tolist() == list(range(len(texts)))
    assert encoder.ids().values.tolist() == texts


@pytest.mark.parametrize("many", [1, 4, 9])
def test_codes_survive_the_change_of_table(many, monkeypatch):
    monkeypatch.setattr("fairmf.data.encode._MANY_ROWS", many)
    encoder, expected, codes = IdEncoder("user"), {}, []
    batches = [
        pa.array([5, 7, 5]),
        pa.array([9, 7], type=pa.int8()),
        pa.array([2**63, 5], type=pa.uint64()),
        pa.array([7, 1]),
    ]
    for batch in batches:
        codes += encoder.encode(batch).tolist()
    wanted = [expected.setdefault(value, len(expected)) for batch in batches for value in batch.to_pylist()]
    assert codes == wanted
    assert encoder.ids().values.tolist() == [5, 7, 9, 2**63, 1]


def test_text_that_is_not_utf8_is_said():
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], dtype=np.int32)), pa.py_buffer(b"\xff"))
    encoder = IdEncoder("name", many=True)
    encoder.encode(broken)
    with pytest.raises(InvalidData, match="Column 'name' holds text that is not UTF-8"):
        encoder.ids()


# -- rows ---------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=60), st.booleans(), st.integers(1, 9))
def test_rows_hold_every_pair_once_in_order(pairs, overwrite, per_block):
    users, items = (np.array([pair[k] for pair in pairs], dtype=np.int32) for k in (0, 1))
    with mock.patch("fairmf.data.sort_kernels._PAIRS_PER_BLOCK", per_block):  # several blocks, also of few pairs
        indptr, indices = distinct_pairs(users, items, (8, 5), overwrite=overwrite)
    assert overwrite or users.tolist() == [pair[0] for pair in pairs]
    for user in range(8):
        assert indices[indptr[user] : indptr[user + 1]].tolist() == sorted({i for u, i in pairs if u == user})
    assert len(indices) == indptr[-1] == len(set(pairs))


def test_many_pairs_are_built_as_few_are(monkeypatch):
    rng = np.random.default_rng(3)
    rng_users = rng.integers(0, 50, 3000)
    frame = pa.table({"user": rng_users, "item": rng.integers(0, 40, 3000)})
    few = Interactions.from_frame(frame)
    monkeypatch.setattr("fairmf.data.csr._MANY_PAIRS", 0)
    many = Interactions.from_frame(frame)
    assert many.fingerprint() == few.fingerprint()
    events = read_frame(frame)
    assert Interactions.from_events(events).fingerprint() == few.fingerprint()
    assert len(events) == 3000  # only the events that nobody else has are overwritten
    assert frame["user"].to_pylist()[:3] == rng_users[:3].tolist()
    assert Interactions.from_frame(frame, weights="sum").to_csr().sum() == 3000


def test_events_hand_over_their_own_rows_alone():
    """A view of a part of an array must not hand the whole array over."""
    whole = np.arange(6, dtype=np.int32)
    events = Events(whole[1:4], whole[1:4].copy(), list("abcdef"), list("uvwxyz"))
    users, items = events._release()
    assert users.tolist() == items.tolist() == [1, 2, 3]
    users[:] = 0
    assert whole.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(events) == 0


@pytest.mark.parametrize("digits", range(1, 19))
def test_integers_of_every_length(digits):
    """Seven digits are one word to the reader, more are read one by one."""
    columns = plain_csv.PlainColumns(2, {0: (0, "int64"), 1: (1, "int64")}, ",")
    values = [10 ** (digits - 1), 10**digits - 1, int("1234567890123456789"[:digits])]
    text = "".join(f"{value},-{value}\n" for value in values)
    found = columns.cut(text.encode())
    assert found[0].to_pylist() == values
    assert found[1].to_pylist() == [-value for value in values]


@pytest.mark.parametrize("odd", ["1x", "12:", "123/", "/", ":", "1\x7f", "1é"])
def test_what_is_close_to_a_digit_is_none(odd):
    columns = plain_csv.PlainColumns(2, {0: (0, "int64"), 1: (1, "int64")}, ",")
    with pytest.raises(plain_csv.NotPlain):
        columns.cut(f"{odd},1\n".encode())


@pytest.mark.slow
def test_numba_is_loaded_when_text_is_cut_and_not_before():
    code = (
        "import sys; from fairmf.data.plain_csv import PlainColumns;"
        "columns = PlainColumns(2, {0: (0, 'int64'), 1: (1, 'string')}, ',');"
        "before = 'numba' in sys.modules; columns.cut(b'1,a\\n');"
        "sys.exit(before or 'numba' not in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_kernels_do_not_import_the_reader():
    code = "import sys, fairmf.data.csv_kernels; sys.exit('fairmf.data.plain_csv' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
