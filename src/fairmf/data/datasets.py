"""List the benchmark data sets: their addresses, terms, sizes, and how to read their files."""

from __future__ import annotations

import difflib
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairmf.data.columns import ColumnName, Columns
from fairmf.errors import InvalidParameter


@dataclass(frozen=True)
class Layout:
    """Describe how the rows of a file are written. `delimiter=None` means lines of a user followed by the items."""

    columns: Columns
    delimiter: str | None
    header: bool = False
    literal: bool = False


@dataclass(frozen=True)
class DataSet:
    """Describe one benchmark data set. Counts are those that its publishers give, before any filter."""

    name: str
    title: str
    users: int
    items: int
    interactions: int
    licence: str
    home: str
    addresses: tuple[str, ...]
    members: tuple[str, ...]
    layout: Layout = field(repr=False)
    megabytes: int | None = None
    md5: str | None = None
    md5_beside: bool = False
    min_user: int = 0
    min_item: int = 0

    @property
    def rating_above(self) -> float | None:
        """Rating above which a row counts as an interaction; None if there are no ratings."""
        return self.layout.columns.rating_above

    @property
    def most_bytes(self) -> int:
        """Largest size of a download that is accepted: twice the known size, or a gigabyte if that is not known."""
        return 2_000_000 * self.megabytes if self.megabytes else 1_000_000_000

    @property
    def unprotected(self) -> bool:
        """Whether a download could be replaced on the way without notice: plain http and no recorded checksum."""
        plain = [urllib.parse.urlsplit(address) for address in self.addresses if address.startswith("http:")]
        return self.md5 is None and any(address.hostname not in ("127.0.0.1", "localhost") for address in plain)

    @property
    def checksum(self) -> str:
        """The checksum that a download is compared with, in words."""
        if self.md5_beside:
            return "MD5 file beside the archive" + (" and recorded MD5" if self.md5 else "")
        return "recorded MD5" if self.md5 else "none published"


def dataset(name: str) -> DataSet:
    """Return the data set with this name; else raise InvalidParameter, which suggests the closest name."""
    if isinstance(name, str) and name in _BY_NAME:
        return _BY_NAME[name]
    near = difflib.get_close_matches(str(name).lower(), _BY_NAME, n=1, cutoff=0.4)
    advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_BY_NAME)}."
    raise InvalidParameter(f"There is no data set {name!r}.", hint=advice)


def datasets() -> Mapping[str, DataSet]:
    """List the benchmark data sets.

    Returns
    -------
    dict of str to DataSet
        With sizes, terms, addresses and filters of each.

    Examples
    --------
    >>> datasets()["ml-1m"].users
    6040
    """
    return dict(_BY_NAME)


_GROUPLENS = (
    "GroupLens research terms: research use; acknowledge the data set in publications; no endorsement by the "
    "University of Minnesota or GroupLens may be implied; {more}; commercial use only with GroupLens' permission; no "
    "warranty. The archive's README holds the full text."
)
_NOT_TO_OTHERS = _GROUPLENS.format(more="no redistribution without separate permission")
_SAME_TERMS = _GROUPLENS.format(more="redistribution only under the same terms")
_LIGHTGCN = (
    "No licence is stated with the files. They are a reduced copy of {source}, shared by the authors of NGCF and "
    "LightGCN for research; the source's own terms apply."
)


def _movielens(name: str, counts: tuple[int, int, int], member: str, layout: Layout, **more: object) -> DataSet:
    users, items, interactions = counts
    return DataSet(
        name=name,
        title=f"MovieLens {name[3:].upper()}",
        users=users,
        items=items,
        interactions=interactions,
        home=f"https://grouplens.org/datasets/movielens/{name[3:]}/",
        addresses=(f"https://files.grouplens.org/datasets/movielens/{name}.zip",),
        members=(member,),
        layout=layout,
        md5_beside=True,
        min_user=5,
        **{"licence": _SAME_TERMS, **more},  # type: ignore[arg-type]
    )


def _adjacency(name: str, title: str, counts: tuple[int, int, int], source: str) -> DataSet:
    folder = f"https://raw.githubusercontent.com/kuandeng/LightGCN/master/Data/{name}"
    return DataSet(
        name=name,
        title=title,
        users=counts[0],
        items=counts[1],
        interactions=counts[2],
        licence=_LIGHTGCN.format(source=source),
        home="https://github.com/kuandeng/LightGCN",
        addresses=(f"{folder}/train.txt", f"{folder}/test.txt"),
        members=("train.txt", "test.txt"),
        layout=Layout(Columns(0, 1), delimiter=None),
    )


def _rated(user: ColumnName, item: ColumnName, rating: ColumnName, time: ColumnName | None) -> Columns:
    # Four stars and more, as in Liang et al. (2018).
    return Columns(user, item, time=time, rating=rating, rating_above=3.5)


_DOUBLE_COLONS = Layout(_rated(0, 1, 2, 3), delimiter="::")
_RATINGS_CSV = Layout(_rated("userId", "movieId", "rating", "timestamp"), delimiter=",", header=True)

_ALL = (
    _movielens(
        "ml-100k",
        (943, 1_682, 100_000),
        "u.data",
        Layout(_rated(0, 1, 2, 3), delimiter="\t"),
        licence=_NOT_TO_OTHERS,
        megabytes=5,
        md5="0e33842e24a9c977be4e0107933c0723",
    ),
    _movielens(
        "ml-1m",
        (6_040, 3_706, 1_000_209),
        "ratings.dat",
        _DOUBLE_COLONS,
        licence=_NOT_TO_OTHERS,
        megabytes=6,
        md5="c4d9eecfca2ab87c1945afe126590906",
    ),
    _movielens(
        "ml-10m", (71_567, 10_681, 10_000_054), "ratings.dat", _DOUBLE_COLONS, licence=_NOT_TO_OTHERS, megabytes=63
    ),
    _movielens(
        "ml-20m",
        (138_493, 27_278, 20_000_263),
        "ratings.csv",
        _RATINGS_CSV,
        megabytes=190,
        md5="cd245b17a1ae2cc31bb14903e1204af3",
    ),
    _movielens(
        "ml-25m",
        (162_541, 62_423, 25_000_095),
        "ratings.csv",
        _RATINGS_CSV,
        megabytes=250,
        md5="6b51fb2759a8657d3bfcbfc42b592ada",
    ),
    _movielens("ml-32m", (200_948, 87_585, 32_000_204), "ratings.csv", _RATINGS_CSV, megabytes=239),
    DataSet(
        name="msd",
        title="Million Song Dataset, taste profile subset",
        users=1_019_318,
        items=384_546,
        interactions=48_373_586,
        licence="Taste profile terms of The Echo Nest: research use, non-commercial; cite the Million Song Dataset "
        "(Bertin-Mahieux et al. 2011). The home page holds the full text.",
        home="http://millionsongdataset.com/tasteprofile/",
        addresses=("http://millionsongdataset.com/sites/default/files/challenge/train_triplets.txt.zip",),
        members=("train_triplets.txt",),
        layout=Layout(Columns(0, 1, weights=2), delimiter="\t", literal=True),
        min_user=20,
        min_item=200,
    ),
    DataSet(
        name="lastfm-360k",
        title="Last.fm 360K users, artists by name",
        users=359_347,
        items=294_015,
        interactions=17_559_530,
        licence="Distributed with permission of Last.fm for non-commercial use; cite Celma (2010), Music "
        "Recommendation and Discovery in the Long Tail. Commercial users have to ask Last.fm.",
        home="https://zenodo.org/records/6090214",
        addresses=("https://zenodo.org/records/6090214/files/lastfm-dataset-360K.tar.gz",),
        members=("usersha1-artmbid-artname-plays.tsv",),
        # literal: some artists are called "NA" or have a quotation mark in their name.
        layout=Layout(Columns(0, 2, weights=3), delimiter="\t", literal=True),
        megabytes=569,
        md5="635e6ed3fc873aa4ba33aba0ebce02b1",
    ),
    _adjacency("gowalla", "Gowalla check-ins, 10-core", (29_858, 40_981, 1_027_370), "the Gowalla check-ins (SNAP)"),
    _adjacency("yelp2018", "Yelp 2018 challenge, 10-core", (31_668, 38_048, 1_561_406), "the Yelp Open Dataset"),
    _adjacency("amazon-book", "Amazon books, 10-core", (52_643, 91_599, 2_984_108), "the Amazon review data"),
    DataSet(
        name="epinions",
        title="Epinions ratings",
        users=49_290,
        items=139_738,
        interactions=664_824,
        licence="No licence is stated; collected by Paolo Massa for research: cite Massa and Avesani, Trust-aware "
        "Bootstrapping of Recommender Systems (2006).",
        home="http://www.trustlet.org/epinions.html",
        addresses=("http://www.trustlet.org/datasets/downloaded_epinions/ratings_data.txt.bz2",),
        members=("ratings_data.txt",),
        layout=Layout(_rated(0, 1, 2, None), delimiter=" "),
        megabytes=3,
    ),
    DataSet(
        name="goodbooks-10k",
        title="Ratings of the ten thousand most popular books",
        users=53_424,
        items=10_000,
        interactions=5_976_479,
        licence="CC BY-SA 4.0: attribution, share alike.",
        home="https://github.com/zygmuntz/goodbooks-10k",
        addresses=("https://raw.githubusercontent.com/zygmuntz/goodbooks-10k/master/ratings.csv",),
        members=("ratings.csv",),
        layout=Layout(_rated("user_id", "book_id", "rating", None), delimiter=",", header=True),
    ),
)
_BY_NAME = {entry.name: entry for entry in _ALL}
