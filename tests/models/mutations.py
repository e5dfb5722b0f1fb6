"""Model files changed for the worse, by accident and on purpose. Run as a program it feeds them to `load_model`.

    python mutations.py GOOD_FILE FOLDER SEED COUNT

As a program it allows itself little more memory than it has, and two seconds per file, so that a blow-up, a hang or a
crash is seen from outside. It prints one JSON line: how often which outcome, and the outcomes that must not be.
"""

import collections
import hashlib
import json
import random
import resource
import signal
import sys
from pathlib import Path


def split(raw):
    """The header's table, its document, and the data."""
    length = int.from_bytes(raw[:8], "little")
    table = json.loads(raw[8 : 8 + length])
    return table, json.loads(table["__metadata__"]["document"]), raw[8 + length :]


def joined(table, document, data):
    """A file whose checksums fit, however odd what they cover is: what an attacker would write."""
    metadata = table["__metadata__"]
    if document is not None:
        metadata["document"] = document if isinstance(document, str) else json.dumps(document)
    lines = "\n".join(str(metadata.get(name)) for name in ("format", "format_version", "written_by", "document"))
    metadata["checksum"] = hashlib.sha256(lines.encode("utf-8", errors="surrogatepass")).hexdigest()
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data


# -- accidents: every one must be found -------------------------------------------------------------------------------


def bit_flip(raw, rng):
    out = bytearray(raw)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        # The header is small beside the data and far more delicate, so half of the flips go there.
        end = min(len(raw), 6000) if rng.random() < 0.5 else len(raw)
        out[rng.randrange(end)] ^= 1 << rng.randrange(8)
    return bytes(out)


def truncation(raw, rng):
    return raw[: rng.randrange(len(raw))]


def extension(raw, rng):
    return raw + rng.randbytes(rng.choice([1, 8, 1000]))


def splice(raw, rng):
    a, b = sorted(rng.randrange(len(raw)) for _ in range(2))
    return rng.choice(
        [raw[:a] + raw[b:], raw[:b] + raw[a:], raw[:a] + rng.randbytes(b - a) + raw[b:], raw[a:] + raw[:a]]
    )


def zeros(raw, rng):
    a = rng.randrange(len(raw))
    b = min(len(raw), a + rng.choice([1, 64, 4096, 10**9]))
    return raw[:a] + bytes(b - a) + raw[b:]


def header_length(raw, rng):
    length = rng.choice([0, 1, 2, 2**63, 2**64 - 1, len(raw), len(raw) - 8, len(raw) - 9, 10**13, rng.randrange(2**32)])
    return length.to_bytes(8, "little") + raw[8:]


def header_text(raw, rng):
    """An edit of the header's text, the length corrected."""
    length = int.from_bytes(raw[:8], "little")
    text = raw[8 : 8 + length]
    a = rng.randrange(length)
    piece = rng.choice([b"", b'"', b"{", b"}", b"[", b",", b"0", b"1e999", b"NaN", b"\xff", b"[" * 50_000, b"9" * 5000])
    text = text[:a] + piece + text[a + rng.choice([0, 1, 5]) :]
    return len(text).to_bytes(8, "little") + text + raw[8 + length :]


ACCIDENTS = (bit_flip, truncation, extension, splice, zeros, header_length, header_text)

# -- attacks: the checksums fit, so either it is refused or it is a model that can be used ----------------------------

ODD = [
    None, True, False, 0, 1, -1, 2, 2**31, 2**63, 2**64, 10**30, 0.5, -0.5, 1e300, "", "x", "auto", "cpu", "__import__",
    [], {}, [1], [[[[1]]]], {"$float": "nan"}, {"$float": "inf"}, {"$tuple": [1]}, {"$bytes": "ff"},
    {"$dict": [[1, 2]]}, {"$unknown": 1}, "\ud800", "IALS", "FiADMM", "Popularity", "os.system", "0" * 64, 4, 40, 30,
]  # fmt: skip


def places(value, path=()):
    """Every place in a JSON document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*path, key)
        yield from places(part, (*path, key))


def change(value, rng):
    """One edit somewhere in a JSON document."""
    path = rng.choice(list(places(value)))
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    action = rng.random()
    if action < 0.7:
        holder[path[-1]] = rng.choice(ODD)
    elif action < 0.85:
        del holder[path[-1]]
    elif isinstance(holder, dict):
        holder[rng.choice(["$float", "extra", "new", ""])] = rng.choice(ODD)
    else:
        holder.append(rng.choice(ODD))


def document_edit(raw, rng):
    table, document, data = split(raw)
    for _ in range(rng.choice([1, 1, 2])):
        change(document["content"], rng)
    return joined(table, document, data)


def settings_edit(raw, rng):
    table, document, data = split(raw)
    settings = document["content"][rng.choice(["settings", "parameters"])]
    settings[rng.choice(list(settings) or ["factors"])] = rng.choice(ODD)
    return joined(table, document, data)


def table_edit(raw, rng):
    table, document, data = split(raw)
    change(table if rng.random() < 0.7 else document["arrays"], rng)
    if not isinstance(table.get("__metadata__"), dict):
        return raw[:8] + b"{}" + raw[10:]
    return joined(table, document, data)


def array_edit(raw, rng):
    """Other bytes in an array, with a checksum that fits: indices and offsets that point anywhere."""
    table, document, data = split(raw)
    name = rng.choice(
        [n for n in table if n != "__metadata__" and table[n]["data_offsets"][1] > table[n]["data_offsets"][0]]
    )
    a, b = table[name]["data_offsets"]
    own = bytearray(data[a:b])
    for _ in range(rng.choice([1, 4, 100])):
        own[rng.randrange(len(own))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
    document["arrays"][name][2] = hashlib.sha256(own).hexdigest()
    return joined(table, document, data[:a] + bytes(own) + data[b:])


def reshaped(raw, rng):
    """An array whose shape is another one of the same size, or of none, consistently so."""
    table, document, data = split(raw)
    name = rng.choice([n for n in table if n != "__metadata__"])
    size = table[name]["data_offsets"][1] - table[name]["data_offsets"][0]
    kind, width = rng.choice([("U8", 1), ("I8", 1), ("F32", 4), ("F64", 8), ("I64", 8), ("I32", 4)])
    count = size // width
    shape = rng.choice(
        [[count], [1, count], [count, 1], [], [count, 1, 1], [-1, -count], [2**40, 0], [0], [float(count)]]
    )
    table[name] |= {"dtype": kind, "shape": shape}
    document["arrays"][name][:2] = [kind, shape]
    return joined(table, document, data)


def bomb(raw, rng):
    """Documents that are small to write and large to hold."""
    table, _, data = split(raw)
    text = rng.choice(["[" * 200_000, '{"a":' * 100_000, "[" + "{}," * 3_000_000 + "{}]", "[" + "9" * 200_000 + "]"])
    return joined(table, text, data)


ATTACKS = (document_edit, settings_edit, table_edit, array_edit, reshaped)


def mutants(raw, seed, count):
    """(name, bytes) of that many changed files; bombs are few, they are slow to write."""
    rng = random.Random(seed)
    kinds = ACCIDENTS + ATTACKS
    for number in range(count):
        make = bomb if number % 100 == 99 else kinds[number % len(kinds)]
        yield make.__name__, make(raw, rng)


def outcome(path, original, accidental):
    """What `load_model` makes of a file; "refused" and "used" are right, all else is not."""
    import numpy as np

    from fairmf import load_model
    from fairmf.errors import BrokenFile, FairmfError

    results = set()
    for mmap in (False, True):
        try:
            model = load_model(path, mmap=mmap, verify=True)
        except BrokenFile as error:
            text = str(error)
            clear = str(path) in text and "\n" not in text and len(text) < 600
            results.add("refused" if clear else f"unclear: {text[:300]}")
            continue
        try:
            users = np.arange(model.n_users) if model.fitted.user_ids is None else model.fitted.user_ids.values[:5]
            ids, _ = model.recommend(users[:5], N=3)
            model.history.column("objective.total")
            assert model.history.seconds >= 0 or accidental is False
        except FairmfError as error:  # such as repeated ids, which are found on first use
            results.add(f"used: {type(error).__name__}" if not accidental else f"accepted: {error}")
            continue
        same = ids.tolist() == original
        results.add("used" if same or not accidental else "accepted with other answers")
    return " / ".join(sorted(results))


def main(seeds, folder, count):
    """Mutants of every good file, in one process: what became of them, by file."""
    sys.stdout.write(json.dumps({good: tried(good, folder, seed, count) for good, seed in seeds.items()}) + "\n")


def tried(good, folder, seed, count):
    from fairmf import load_model

    raw = Path(good).read_bytes()
    model = load_model(good)
    original = model.recommend(model.fitted.user_ids.values[:5], N=3)[0].tolist()  # compiles, before memory is limited
    model.fold_in(model.fitted.interactions)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20), -1))
    counts, wrong = collections.Counter(), []
    accidents = {make.__name__ for make in ACCIDENTS}
    for name, mutant in mutants(raw, seed, count):
        path = Path(folder) / "mutant.fairmf"
        path.write_bytes(mutant)
        signal.alarm(20)  # kills: a hang is seen as a signal
        try:
            result = outcome(path, original, name in accidents)
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"[:300]
        signal.alarm(0)
        counts[result if result in ("refused", "used") else "other"] += 1
        if not all(part == "refused" or part.startswith("used") for part in result.split(" / ")):
            wrong.append([name, result])
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    return {"counts": counts, "wrong": wrong}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
