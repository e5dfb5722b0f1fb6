"""Small files in the real formats of the data sets, and the rows they hold, worked out by hand-written loops."""

import bz2
import io
import tarfile
import zipfile
from collections import Counter

import numpy as np

LASTFM = "usersha1-artmbid-artname-plays.tsv"
HALVES = {"ml-10m", "ml-20m", "ml-25m", "ml-32m"}


def ratings(name, seed=0):
    """(user, item, rating, time) rows, the pairs distinct, halves of stars where the real ones have them."""
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(40 * 30)[:300]
    stars = rng.integers(1, 11, 300) / 2 if name in HALVES else rng.integers(1, 6, 300)
    times = 978_300_000 + rng.integers(0, 10**6, 300)
    return [
        (int(p // 30) + 1, int(p % 30) + 1, s, int(t)) for p, s, t in zip(pairs, stars.tolist(), times, strict=True)
    ]


def plays(name, seed=0):
    """(user, item, plays) rows; popular items first, so that the minimums keep some and drop some."""
    rng = np.random.default_rng(seed)
    if name == "msd":
        rows = [(u, i) for u in range(230) for i in range(25) if i < 22 or u < 150]
        rows = [(u, i) for u, i in rows if u < 215 or i < 10]
        return [(f"{u:040x}", f"SO{i:016d}", int(rng.integers(1, 20))) for u, i in rows]
    names = ["the beatles", 'the "quoted" one', "NA", "null", "björk", "", "a, b"]
    return [(f"{u:040x}", names[i], int(rng.integers(1, 500))) for u in range(9) for i in range(7) if (u + i) % 3]


def adjacency(seed=0):
    """{file: [(user, items)]}; some test users have no items."""
    rng = np.random.default_rng(seed)
    train = [(u, rng.permutation(20)[: 3 + u % 4].tolist()) for u in range(15)]
    test = [(u, sorted(set(range(20)) - set(items))[: u % 3]) for u, items in train]
    return {"train.txt": train, "test.txt": test}


def text_of(name):
    """{member: bytes} as published."""
    if name in ("gowalla", "yelp2018", "amazon-book"):
        return {
            file: "".join(f"{u} {' '.join(map(str, items))}\n" for u, items in rows).encode()
            for file, rows in adjacency().items()
        }
    if name == "msd":
        return {"train_triplets.txt": "".join(f"{u}\t{i}\t{n}\n" for u, i, n in plays(name)).encode()}
    if name == "lastfm-360k":
        return {LASTFM: "".join(f"{u}\tmbid\t{i}\t{n}\n" for u, i, n in plays(name)).encode()}
    rows = ratings(name)
    if name == "ml-100k":
        return {"u.data": "".join("\t".join(map(str, row)) + "\n" for row in rows).encode()}
    if name in ("ml-1m", "ml-10m"):
        return {
            "ratings.dat": "".join(
                "::".join(f"{x:g}" if x == row[2] else str(x) for x in row) + "\n" for row in rows
            ).encode()
        }
    if name == "epinions":
        return {"ratings_data.txt": "".join(f"{u} {i} {s}\n" for u, i, s, _ in rows).encode()}
    if name == "goodbooks-10k":
        return {"ratings.csv": ("user_id,book_id,rating\n" + "".join(f"{u},{i},{s}\n" for u, i, s, _ in rows)).encode()}
    lines = "".join(f"{u},{i},{s},{t}\n" for u, i, s, t in rows)
    return {"ratings.csv": ("userId,movieId,rating,timestamp\n" + lines).encode()}


def files_of(name):
    """{file name: bytes} as they lie on the publishers' servers."""
    texts = text_of(name)
    if name.startswith("ml-"):
        folder = "ml-10M100K" if name == "ml-10m" else name
        return {f"{name}.zip": zipped({f"{folder}/README": b"terms", **{f"{folder}/{k}": v for k, v in texts.items()}})}
    if name == "msd":
        return {"train_triplets.txt.zip": zipped(texts)}
    if name == "lastfm-360k":
        return {"lastfm-dataset-360K.tar.gz": tarred({f"lastfm-dataset-360K/{k}": v for k, v in texts.items()})}
    if name == "epinions":
        return {"ratings_data.txt.bz2": bz2.compress(texts["ratings_data.txt"])}
    return texts


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in {"lastfm-dataset-360K/README": b"terms", **members}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def expected_rows(name, filtered=True):
    """(user, item, weight, time) after the paper's filters, None where there is none."""
    if name in ("gowalla", "yelp2018", "amazon-book"):
        return [(u, i, None, None) for rows in adjacency().values() for u, items in rows for i in items]
    if name in ("msd", "lastfm-360k"):
        rows = [(u, i, float(n), None) for u, i, n in plays(name) if i]
    else:
        timed = name.startswith("ml-")
        rows = [(u, i, None, t if timed else None) for u, i, s, t in ratings(name) if s > 3.5 or not filtered]
    if not filtered:
        return rows
    min_user, min_item = (20, 200) if name == "msd" else (5, 0) if name.startswith("ml-") else (0, 0)
    for column, least in ((1, min_item), (0, min_user)):
        counts = Counter(row[column] for row in rows)
        rows = [row for row in rows if counts[row[column]] >= least]
    return rows
