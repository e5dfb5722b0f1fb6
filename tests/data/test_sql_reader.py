"""Queries against real databases: a SQLite file, and a PostgreSQL server where its programs are installed."""

import gc
import sqlite3
import sys
import traceback
import uuid
from urllib.parse import quote

import numpy as np
import pytest
from conftest import slow_values
from postgres_server import PASSWORD, server

import fairmf
from fairmf.data import read_sql as sql_reader
from fairmf.data.interactions import Interactions
from fairmf.data.read_sql import read_sql
from fairmf.errors import InvalidData, InvalidParameter, MissingDependency

ROWS = [("ann", 7, 2.0, 10, 4.5), ("bob", 7, 1.0, 20, 3.0), ("ann", 9, 0.5, 30, 5.0), ("cyd", 3, 4.0, 40, 2.0)]
# Before 1.13, SQLite's driver gave no reason, and PostgreSQL's did not say which bytes are a UUID.
NEW_DRIVERS = sys.version_info >= (3, 11)  # 1.12 is the last one for Python 3.10
SELECT = "SELECT who AS user, what AS item, plays, at, stars FROM events ORDER BY at"


@pytest.fixture(scope="module")
def sqlite_url(tmp_path_factory):
    pytest.importorskip("adbc_driver_sqlite", reason='needs the sql extra: pip install "fairmf[sql]"')
    path = tmp_path_factory.mktemp("sql") / "the events #1?.db"  # characters that mean something in a URL
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE events (who TEXT, what INTEGER, plays REAL, at INTEGER, stars REAL)")
    connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", ROWS)
    connection.commit()
    connection.close()
    return f"sqlite:///{quote(str(path))}"


@pytest.fixture(scope="module")
def postgres_url():
    driver = pytest.importorskip(
        "adbc_driver_postgresql.dbapi", reason='needs the sql extra: pip install "fairmf[sql]"'
    )
    with server() as port:
        url = f"postgresql://tester:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/postgres"
        with driver.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE events (who text, what int, plays numeric(9,2), at timestamptz, stars real)")
            for who, what, plays, at, stars in ROWS:
                cursor.execute(f"INSERT INTO events VALUES ('{who}', {what}, {plays}, to_timestamp({at}), {stars})")
            connection.commit()
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request):
    return request.getfixturevalue(f"{request.param}_url")


def refuses(call, *words, kind=InvalidData):
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    for word in words:
        assert word in message
    assert "\n" not in message
    everything = "".join(traceback.format_exception(caught.value))
    for secret in (PASSWORD, quote(PASSWORD, safe="")):
        assert secret not in everything
    return message


def test_the_rows_arrive_in_order_with_their_ids(url):
    events = read_sql(SELECT + ";", url, weights="plays", time="at")
    assert list(events.user_ids.values[events.users]) == [row[0] for row in ROWS]
    assert list(events.item_ids.values[events.items]) == [row[1] for row in ROWS]
    np.testing.assert_array_equal(events.weights, [row[2] for row in ROWS])
    unit = 1 if url.startswith("sqlite") else 1_000_000
    np.testing.assert_array_equal(events.times, [row[3] * unit for row in ROWS])


def test_ratings_are_filtered_and_the_matrix_is_the_one_of_a_frame(url):
    import pandas as pd

    frame = pd.DataFrame(ROWS, columns=["user", "item", "plays", "at", "stars"])
    options = {"rating": "stars", "rating_above": 2.5, "weights": "plays"}
    data = Interactions.from_sql(SELECT, url, **options)
    assert data.fingerprint() == Interactions.from_frame(frame, **options).fingerprint()
    assert fairmf.read_sql is read_sql


def test_the_default_is_binary_and_filters_work(url):
    data = Interactions.from_sql(SELECT, url, min_user=2)
    assert data.user_ids.values.tolist() == ["ann"]
    assert data.is_binary


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT who AS user, what AS item FROM nothing", ["The query failed", "nothing"]),
        ("SELECT whom AS user, what AS item FROM events", ["The query failed", "whom"]),
        ("SELECT what AS item FROM events", ["'user' is not in the query's answer", "'item'"]),
        ("SELECT who, what AS item FROM events", ["'user' is not in", "'who', 'item'"]),
        ("SELECT who AS user, who AS user, what AS item FROM events", ["2 columns named 'user'"]),
        ("SELECT who FROM FROM events", ["The query failed", "syntax"]),
        ("SELECT who AS user, what AS item FROM events WHERE at IS NULL", ["no rows in the query's answer"]),
        ("SELECT NULLIF(who, 'bob') AS user, what AS item FROM events", ["'user'", "1 null", "row 1"]),
        ("SELECT who AS user, CAST(NULL AS INTEGER) AS item FROM events", ["'item'", "4 null"]),
    ],
)
def test_what_is_wrong_is_said_in_one_line(url, query, words):
    if url.startswith("postgres"):
        query = query.replace(" user", ' "user"')  # a word of PostgreSQL's own after AS needs none, but alone it does
    refuses(lambda: read_sql(query, url), *words)


@pytest.mark.filterwarnings("error" if NEW_DRIVERS else "ignore::pytest.PytestUnraisableExceptionWarning")
def test_nothing_is_ever_written(url, tmp_path):
    for query in (
        "DELETE FROM events RETURNING who AS user, what AS item",
        "DROP TABLE events",
        f"ATTACH DATABASE '{tmp_path}/new.db' AS other",
        f"/* SELECT */ attach '{tmp_path}/new.db' AS other -- SELECT",
        f"VACUUM INTO '{tmp_path}/new.db'",
        "PRAGMA user_version = 7",
        "SELEC who FROM events",
    ):
        refuses(lambda query=query: read_sql(query, url), "a statement that reads", kind=InvalidParameter)
    writing = "WITH a AS (SELECT 1) INSERT INTO events (who) SELECT 'eve'"
    refuses(lambda: read_sql(writing, url), "The query failed", *(["read"] if NEW_DRIVERS else []))
    assert len(read_sql(SELECT, url)) == len(ROWS)
    assert list(tmp_path.iterdir()) == []
    gc.collect()  # old drivers complain of a failed query once more when their objects are deleted


@pytest.mark.parametrize("more", ["SELECT 1", "DROP TABLE events", "/* ; */ x", "'a'"])
def test_a_second_statement_is_refused(url, more):
    refuses(lambda: read_sql(f"{SELECT}; {more}", url), "one SQL statement", kind=InvalidParameter)


@pytest.mark.parametrize("end", [";", " ;; ", "; -- and; that; is it", "; /* SELECT 1; */", " -- ;'"])
def test_semicolons_and_comments_at_the_end_are_no_second_statement(url, end):
    query = "/* ;' */ SELECT who AS \"user\", ';''--' AS item FROM events" + end
    assert read_sql(query, url).item_ids.values.tolist() == [";'--"]


@pytest.mark.parametrize(
    ("query", "words"), [("", "Got ''"), (" ; ", "' ; '"), (None, "None"), ("events", "SELECT * FROM events")]
)
def test_a_query_is_needed(query, words):
    refuses(lambda: read_sql(query, "sqlite:///x.db"), "'query'", words, kind=InvalidParameter)


# -- SQLite -------------------------------------------------------------------------------------------------------


def test_a_sqlite_file_that_is_not_there_is_not_made(tmp_path, monkeypatch):
    pytest.importorskip("adbc_driver_sqlite", reason='needs the sql extra: pip install "fairmf[sql]"')
    monkeypatch.chdir(tmp_path)
    refuses(lambda: read_sql(SELECT, "sqlite:///absent.db"), "There is no file absent.db")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database(tmp_path):
    pytest.importorskip("adbc_driver_sqlite", reason='needs the sql extra: pip install "fairmf[sql]"')
    (tmp_path / "a.db").write_text("user,item\n1,2\n" * 100)
    refuses(lambda: read_sql(SELECT, f"sqlite:///{tmp_path}/a.db"), "not a database")


def test_a_type_that_changes_far_down_is_an_error_with_a_remedy(tmp_path, monkeypatch):
    pytest.importorskip("adbc_driver_sqlite", reason='needs the sql extra: pip install "fairmf[sql]"')
    monkeypatch.setattr(sql_reader, "_SQLITE_BATCH_ROWS", 4)
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE events (user, item)")  # no types: SQLite keeps what it is given
    connection.executemany("INSERT INTO events VALUES (?, ?)", [(k if k < 9 else "nine", k) for k in range(10)])
    connection.commit()
    connection.close()
    refuses(lambda: read_sql("SELECT user, item FROM events", f"sqlite:///{tmp_path}/a.db"), "CAST(user AS TEXT)")
    mended = read_sql("SELECT CAST(user AS TEXT) AS user, item FROM events", f"sqlite:///{tmp_path}/a.db")
    assert mended.user_ids.values.tolist() == [*map(str, range(9)), "nine"]


def test_batches_join(sqlite_url, monkeypatch):
    whole = read_sql(SELECT, sqlite_url, weights="plays")
    monkeypatch.setattr(sql_reader, "_SQLITE_BATCH_ROWS", 1)
    parts = read_sql(SELECT, sqlite_url, weights="plays")
    np.testing.assert_array_equal(parts.users, whole.users)
    np.testing.assert_array_equal(parts.weights, whole.weights)


# -- PostgreSQL ---------------------------------------------------------------------------------------------------


def test_uuids_and_exact_numbers_as_ids(postgres_url):
    one, two = uuid.UUID(int=1), uuid.UUID(int=2)
    values = f"(VALUES ('{one}'::uuid, 10::numeric), ('{two}'::uuid, 2.50::numeric))"
    events = read_sql(f'SELECT a AS "user", b AS item FROM {values} AS t(a, b)', postgres_url)
    assert events.user_ids.values.tolist() == ([one, two] if NEW_DRIVERS else [one.bytes, two.bytes])
    assert events.item_ids.values.tolist() == ["10", "2.50"]


def test_names_in_lower_case_are_suggested(postgres_url):
    query = "SELECT who AS userId, what AS item FROM events"
    refuses(lambda: read_sql(query, postgres_url, user="userId"), "user='userid'")


def test_a_wrong_password_a_wrong_database_and_no_server(postgres_url):
    quoted = quote(PASSWORD, safe="")
    wrong = refuses(
        lambda: read_sql(SELECT, postgres_url.replace(quoted, "guessed99")), "tester:***@", "authentication"
    )
    assert "guessed99" not in wrong
    refuses(lambda: read_sql(SELECT, postgres_url + "x"), "cannot be opened", '"postgresx" does not exist')
    nobody = f"postgresql://tester:{quoted}@127.0.0.1:1/postgres"
    refuses(lambda: read_sql(SELECT, nobody), "cannot be opened", "Connection refused", "tester:***@127.0.0.1:1")


def test_a_password_that_the_driver_quotes_is_taken_out(postgres_url):
    # libpq quotes the value of an option that it cannot use.
    refuses(lambda: read_sql(SELECT, f"{postgres_url}?connect_timeout={quote(PASSWORD, safe='')}"), "***")


def test_a_long_answer_comes_in_batches(postgres_url):
    query = 'SELECT i % 1000 AS "user", (i % 77)::text AS item FROM generate_series(0, 1999999) AS i'
    events = read_sql(query, postgres_url)
    rows = np.arange(2_000_000)
    np.testing.assert_array_equal(events.user_ids.values[events.users], rows % 1000)
    np.testing.assert_array_equal(events.item_ids.values.astype(int)[events.items], rows % 77)


# -- without a driver ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sqlite", *slow_values("postgresql")])
def test_without_a_driver_the_error_names_the_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, f"adbc_driver_{name}", None)
    monkeypatch.setitem(sys.modules, f"adbc_driver_{name}.dbapi", None)
    url = "sqlite:///a.db" if name == "sqlite" else "postgresql://h/x"
    refuses(lambda: read_sql(SELECT, url), f"adbc-driver-{name}", "pip install", kind=MissingDependency)
