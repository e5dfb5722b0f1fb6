import pytest

from fairmf.data import read_csv as csv_reader
from fairmf.data.interactions import Interactions
from fairmf.data.read_csv import guess_delimiter, read_csv


def ids(rows):
    return rows.user_ids.values.tolist(), rows.item_ids.values.tolist()


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("user,item\n1,2\n", ","),
        ("user\titem\n1\t2\n", "\t"),
        ("user;item\n1;2\n", ";"),
        ("user|item\n1|2\n", "|"),
        ("user item\n1 2\n", " "),
        ('title;n\n"One, two";3\n"Four, five, six";4\n', ";"),
        ("the user,the item\nA B,C D E\n", ","),
        ("alone\n1\n", ","),
        ("1\t2", "\t"),
        ("1::10::5::978\n2::11::3::979\n3::1", "::"),
        ("fe80::1,5\nfe80::2,6\n", ","),
        ("a\n::b\n", ","),
        ("1::Toy Story (1995)::Comedy\n2::Grumpier Men (1995)::Comedy\n", "::"),
        ("1::Heat, The (1995)::Crime|Drama\n2::Star, The: IV (1977)::Action|War\n", "::"),
        ("u::i::r\nann::x y::5\nbob::y z::4\n", "::"),
        ('title;n\n"One\nline; and more";3\n"Four";4\n', ";"),
        ('user;item\n"a" b;3\nc;4\n', ";"),
        ('id;title\n"a";"One, \\"two\\"; three"\n"b";"Four, five"\n', ";"),
    ],
)
def test_the_delimiter_is_guessed(text, delimiter):
    assert guess_delimiter(text) == delimiter


def write(path, text, **how):
    path.write_text(text, **how)
    return path


@pytest.fixture
def _small_blocks(monkeypatch):
    monkeypatch.setattr("fairmf.data.read_csv._BLOCK_BYTES", 64)


@pytest.mark.usefixtures("_small_blocks")
def test_a_late_id_that_is_no_integer_makes_all_of_that_column_text(tmp_path):
    lines = [f"{k % 5},{k % 3}" for k in range(100)] + ["x7,1"]
    rows = read_csv(write(tmp_path / "a.csv", "user,item\n" + "\n".join(lines)))
    assert ids(rows) == (["0", "1", "2", "3", "4", "x7"], [0, 1, 2])
    assert len(rows) == 101


@pytest.mark.usefixtures("_small_blocks")
def test_numbers_far_down_may_have_a_fraction(tmp_path):
    lines = [f"1,{k},3,{k}" for k in range(100)] + ["1,100,3.5,100.25"]
    path = write(tmp_path / "a.csv", "user,item,w,t\n" + "\n".join(lines))
    rows = read_csv(path, weights="w", time="t")
    assert rows.weights[-1] == 3.5
    assert rows.times[-1] == 100.25
    assert ids(rows)[1] == list(range(101))


def test_ids_keep_their_leading_zeros_as_text(tmp_path):
    path = write(tmp_path / "a.csv", "user,item\n007,1\n7,2\n")
    assert ids(read_csv(path, text_ids=True)) == (["007", "7"], ["1", "2"])
    assert ids(read_csv(path)) == (["007", "7"], [1, 2])
    assert Interactions.from_csv(path, text_ids=True).n_users == 2


@pytest.mark.parametrize(
    "names",
    [
        ("1.10", "1.1"), ("1e1", "10"), ("2020-01-01", "2020-01-02"), ("true", "false"), (f"1{2**64}", f"2{2**64}"),
        ("0x10", "16"), ("007", "7"), ("-0", "0"), ("+5", "5"), (" 5", "5", "5 "), ("1_000", "1000"), ("\uff11", "1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("least", [0, 1 << 60])
def test_two_texts_are_never_one_id(tmp_path, names, least, monkeypatch):
    monkeypatch.setattr(csv_reader, "_PLAIN_FROM_BYTES", least)
    path = write(tmp_path / "a.csv", "user,item\n" + "".join(f"{name},1\n" for name in names), encoding="utf-8")
    assert ids(read_csv(path)) == (list(names), [1])


def test_quoted_text_with_delimiters_and_a_byte_order_mark(tmp_path):
    path = write(tmp_path / "a.csv", '\ufeffuser,item\n1,"Heat, and ""Dust"" (1983)"\n2,"NA"\n', encoding="utf-8")
    assert ids(read_csv(path)) == ([1, 2], ['Heat, and "Dust" (1983)', "NA"])


def test_other_encodings(tmp_path):
    path = write(tmp_path / "a.csv", "user,item\nJosé,1\n", encoding="latin-1")
    assert ids(read_csv(path, encoding="latin-1"))[0] == ["José"]
    path = write(tmp_path / "b.csv", "user,item\nJosé,1\n", encoding="utf-16")
    assert ids(read_csv(path, encoding="utf-16"))[0] == ["José"]


def test_double_colons_by_every_second_position(tmp_path):
    path = write(tmp_path / "ratings.dat", "1::10::5::978\n2::11::3::979\n")
    rows = read_csv(path, delimiter=":", header=False, user=0, item=2, rating=4, rating_above=3.5)
    assert ids(rows) == ([1], [10])


def test_numbered_columns_in_interactions(tmp_path):
    path = write(tmp_path / "a.csv", "1,10,2\n1,10,3\n2,11,1\n")
    data = Interactions.from_csv(path, header=False, user=0, item=1, weights=2)
    assert data.to_csr().toarray().tolist() == [[5, 0], [0, 1]]
