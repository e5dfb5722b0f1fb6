"""The first look at a file: its kind, its columns, and which is likely to be which."""

import bz2
import gzip
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairmf.data.columns import is_item_id
from fairmf.data.sniff import Peek, guess_columns, peek
from fairmf.errors import InvalidData


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("userId,movieId,rating\n1,2,3\n", Peek("csv", ("userId", "movieId", "rating"), ",", True, ("1", "2", "3"))),
        ("1\t2\t3\t881250949\n", Peek("csv", (0, 1, 2, 3), "\t", False, ("1", "2", "3", "881250949"))),
        (
            "1::1193::5::978300760\n1::661::3::9\n",
            Peek("csv", (0, 1, 2, 3), "::", False, ("1", "1193", "5", "978300760")),
        ),
        ("user;item\n", Peek("csv", ("user", "item"), ";", True, ())),
        ("\ufeffuser,item\na,b\n", Peek("csv", ("user", "item"), ",", True, ("a", "b"))),
        ('"the user","item, title"\na,b\n', Peek("csv", ("the user", "item, title"), ",", True, ("a", "b"))),
        ("ann,17\nbob,18\n", Peek("csv", (0, 1), ",", False, ("ann", "17"))),
        (
            '"ISBN";"Book-Title"\n"7X";"\\"O\\" Is, for; Outlaw"\n"8X";"Plain, and so on"\n',
            Peek("csv", ("ISBN", "Book-Title"), ";", True, ("7X", '"O" Is, for; Outlaw')),
        ),
    ],
)
def test_text_is_cut_and_its_header_found(tmp_path, text, expected):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    assert peek(tmp_path / "a.csv") == expected


def test_what_is_said_is_not_guessed(tmp_path):
    (tmp_path / "a.csv").write_text("ann,x y\nbob,y z\n")
    assert peek(tmp_path / "a.csv", header=False).names == (0, 1)
    assert peek(tmp_path / "a.csv", delimiter=" ").names == ("ann,x", "y")


@pytest.mark.parametrize(("packed", "opened"), [("gz", gzip.open), ("bz2", bz2.open), ("xz", lzma.open)])
def test_compressed_text(tmp_path, packed, opened):
    with opened(tmp_path / f"a.csv.{packed}", "wt") as file:
        file.write("user,item\n1,2\n")
    assert peek(tmp_path / f"a.csv.{packed}").names == ("user", "item")


def test_tables_by_their_content_or_ending(tmp_path):
    table = pa.table({"who": [1], "what": [2]})
    pq.write_table(table, tmp_path / "no-ending")
    assert peek(tmp_path / "no-ending") == Peek("parquet", ("who", "what"))
    (tmp_path / "parts").mkdir()
    pq.write_table(table, tmp_path / "parts" / "a.parquet")
    assert peek(tmp_path / "parts").kind == "parquet"
    with pa.OSFile(str(tmp_path / "b"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    assert peek(tmp_path / "b") == Peek("arrow", ("who", "what"))
    (tmp_path / "c.parquet").write_text("user,item\n1,2\n")
    with pytest.raises(InvalidData, match="Parquet"):
        peek(tmp_path / "c.parquet")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            ("userId", "movieId", "rating", "timestamp"),
            {"user": "userId", "item": "movieId", "rating": "rating", "time": "timestamp"},
        ),
        (("user_id", "book_id", "rating"), {"user": "user_id", "item": "book_id", "rating": "rating"}),
        (
            ("reviewerID", "asin", "overall", "unixReviewTime"),
            {"user": "reviewerID", "item": "asin", "rating": "overall", "time": "unixReviewTime"},
        ),
        (
            ("id", "customer", "product", "quantity", "date"),
            {"user": "customer", "item": "product", "weights": "quantity", "time": "date"},
        ),
        (("USER ID", "Item", "Plays"), {"user": "USER ID", "item": "Item", "weights": "Plays"}),
        (("country", "user", "title"), {"user": "user", "item": "title"}),
        (("a", "b"), {"user": "a", "item": "b"}),
        (("a", "b", "c"), {}),
        (("item", "user"), {"user": "user", "item": "item"}),
        (("user_name", "user", "item_category", "item_id"), {"user": "user", "item": "item_id"}),
        (("country", "discount"), {"user": "country", "item": "discount"}),
        (("User-ID", "ISBN", "Book-Rating"), {"user": "User-ID", "item": "ISBN", "rating": "Book-Rating"}),
        (("User-ID", "code", "Book-Rating"), {"user": "User-ID", "rating": "Book-Rating"}),
        (
            ("user_id", "movie_score", "item_count"),
            {"user": "user_id", "rating": "movie_score", "weights": "item_count"},
        ),
        (("a", "stars"), {"rating": "stars"}),
        (("user", "Book-Author", "book_price"), {"user": "user"}),
        (
            ("rating", "title", "asin", "parent_asin", "user_id", "timestamp"),
            {"user": "user_id", "item": "asin", "rating": "rating", "time": "timestamp"},
        ),
        (("timestamp", "visitorid", "event", "itemid"), {"user": "visitorid", "item": "itemid", "time": "timestamp"}),
        (("user_name", "customer_id", "item_id", "movie_id"), {"user": "customer_id", "item": "item_id"}),
        (("session_id", "user_id", "userSha1", "item"), {"user": "user_id", "item": "item"}),
    ],
)
def test_columns_by_their_names(names, expected):
    assert guess_columns(Peek("csv", names)).columns == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("1", "2"), {"user": 0, "item": 1}),
        (("1", "2", "4.5", "978300760"), {"user": 0, "item": 1, "rating": 2, "time": 3}),
        (("1", "2", "978300760"), {"user": 0, "item": 1, "time": 2}),
        (("1", "2", "x"), {"user": 0, "item": 1}),
        (("1",), {"user": 0}),
        (("1", "4.5", "7"), {"user": 0, "rating": 2}),
    ],
)
def test_columns_by_their_places(row, expected):
    assert guess_columns(Peek("csv", tuple(range(len(row))), ",", False, row)).columns == expected


def test_several_likely_columns_are_choices_not_a_guess():
    guess = guess_columns(Peek("csv", ("user", "artist_id", "track_id", "plays")))
    assert guess.columns == {"user": "user", "weights": "plays"}
    assert guess.choices == {"item": ("artist_id", "track_id")}
    assert guess.reasons == {"user": "by its name", "weights": "by its name"}


@pytest.mark.parametrize(
    "name",
    ["item", "item_id", "itemid", "movieId", "movie_id", "id", "ID", "product_id", "asin", "track_id", "artist_id"],
)
def test_ids_in_a_table_of_items(name):
    assert is_item_id(name)


@pytest.mark.parametrize("name", ["title", "item_name", "artist", "track", "genres", "user_id", "book author", "name"])
def test_what_holds_no_ids_in_a_table_of_items(name):
    assert not is_item_id(name)
