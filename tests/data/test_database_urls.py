"""A URL's password is found wherever it stands, and never shown."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmf.data.read_sql import parse_database_url, without_password
from fairmf.errors import InvalidParameter


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:pw123@db.example:5432/shop", "postgresql://ann:***@db.example:5432/shop"),
        ("postgres://ann:pw123@h/shop", "postgres://ann:***@h/shop"),
        ("postgresql+psycopg2://ann:pw123@h/shop", "postgresql+psycopg2://ann:***@h/shop"),
        ("postgresql://ann@h/shop?password=pw123", "postgresql://ann@h/shop?password=***"),
        ("postgresql://ann@h/shop?sslmode=require&sslpassword=pw123", "postgresql://ann@h/shop?sslmode=require&sslpassword=***"),
        ("postgresql:///shop?host=/run/postgresql", "postgresql:///shop?host=/run/postgresql"),
        ("postgresql://ann:pw123@h1:1,h2:2/shop", "postgresql://ann:***@h1:1,h2:2/shop"),
        ("postgresql://[::1]:5432/shop", "postgresql://[::1]:5432/shop"),
        ("sqlite:///events.db", "sqlite:///events.db"),
    ],
)  # fmt: skip
def test_what_is_shown(url, shown):
    assert without_password(url) == shown
    assert "pw123" not in repr(parse_database_url(url))


@given(password=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=6))
def test_any_quoted_password_is_hidden_in_both_spellings(password):
    quoted = quote(password, safe="")
    url = parse_database_url(f"postgresql://ann:{quoted}@h/shop")
    assert url.shown == "postgresql://ann:***@h/shop"
    assert url.address == f"postgresql://ann:{quoted}@h/shop?connect_timeout=10"
    assert url.censored(f"<{quoted}> <{password}>") == "<***> <***>"


@pytest.mark.parametrize(
    "password", ["pw/123", "pw?123", "pw#123", "pw@123", "pw 123", "pw%zz123", "pw[123", "p:w@1/23"]
)
def test_a_password_that_is_not_quoted_is_not_quoted_in_the_error_either(password):
    with pytest.raises(InvalidParameter, match=r"urllib\.parse\.quote") as caught:
        parse_database_url(f"postgresql://ann:{password}@h/shop")
    assert "123" not in str(caught.value)
    assert "pw" not in str(caught.value).replace("password", "")
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://ann:pw123@h/shop", "one of mysql://"),
        ("events.db", "starts differently"),
        ("ann:pw123@h/shop", "starts differently"),
        ("", "starts differently"),
        (7, "Got int instead"),
        ("postgresql://ann:pw123@h/shop#1", "cannot be taken apart"),
        ("sqlite://", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:///:memory:", "three slashes"),
        ("sqlite://events.db", "three slashes"),
    ],
)
def test_other_urls_are_refused(url, words):
    with pytest.raises(InvalidParameter) as caught:
        parse_database_url(url)
    assert words in str(caught.value)
    assert "pw123" not in str(caught.value)


def test_a_sqlalchemy_url_is_taken_as_it_is():
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = sqlalchemy.engine.make_url("postgresql://ann:pw123@h/shop")
    assert parse_database_url(url).address.startswith("postgresql://ann:pw123@h/shop")
    assert without_password(url) == "postgresql://ann:***@h/shop"


def test_addresses():
    assert parse_database_url("sqlite:///a%20b.db").address == "a b.db"
    assert parse_database_url("sqlite:////data/x.db").address == "/data/x.db"
    assert parse_database_url("postgresql://h/x?connect_timeout=3").address == "postgresql://h/x?connect_timeout=3"
    assert parse_database_url("postgresql://h/x?options=-c a").address.endswith("?options=-c%20a&connect_timeout=10")
