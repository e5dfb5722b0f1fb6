"""Convert the content of a report to the JSON that its scripts read. Items are identified by their row in `items`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairmf.metrics.audit_change import Change, finite
from fairmf.metrics.exposure import lorenz_curve
from fairmf.metrics.registry import parse_metric
from fairmf.metrics.sentences import VERDICTS, better, cut, with_ends, written
from fairmf.reports.content import HISTORY, LONGEST_GROUP, Content, Position, Values
from fairmf.text import whole
from fairmf.types import Record

Json = Record
BANDS = 10
MOST_GROUPS = 200  # groups in the page: those that change most, where there are more
MOST_ITEMS = 4000  # items in the page; with their exposure at every stop they take a fraction of its 6 MB
MOVERS = 10  # gainers and losers that are named at every stop
LORENZ_POINTS = 51
RANK_POINTS = 60


def to_json(content: Content) -> str:
    """Return the payload as JSON that is safe inside a <script> element, whatever the names contain."""
    text = json.dumps(payload(content), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":  # "<" could end the element, the others end lines in old engines
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return whole(text)


def payload(content: Content) -> Json:
    """Return the data of the scripts as plain Python values."""
    found: Json = {
        "metrics": [_metric(label) for label in content.metrics],
        "knob": content.knob,
        "users": content.measured_on,
        "quality": content.quality,
        "inequality": content.inequality,
        "at": content.at,
        "confidence": content.confidence,
        "chosen": content.chosen,
        "positions": [_position(content, position) for position in content.positions],
        "series": [{"name": s.name, "points": [list(point) for point in s.points]} for s in content.series],
    }
    if content.catalogue is not None and content.before.exposure is not None:
        found |= _of_items(content)
    if any(position.groups for position in content.positions):
        found["groups"] = _groups(content)
    if content.history is not None and len(content.history):
        found["history"] = history_columns(content)
    return found


def _metric(label: str) -> Json:
    wanted = parse_metric(label)
    return {
        "label": label, "title": wanted.title, "meaning": wanted.meaning, "share": wanted.metric.percent,
        "lower": wanted.lower_is_better,
    }  # fmt: skip


def _position(content: Content, position: Position) -> Json:
    verdicts = {m: better(m, content.change(position, m)) for m in content.metrics}
    users = position.users.get(content.quality)
    return {
        "name": position.name,
        "evenness": position.evenness,
        "fairness": position.fairness,
        "values": {m: finite(position.values.get(m)) for m in content.metrics},
        "written": {m: written(m, position.values.get(m)) for m in content.metrics},
        "ends": {m: between(m, position.intervals[m]) for m in content.metrics if m in position.intervals},
        "changed": {} if position is content.before else {m: _told(content, position, m) for m in content.metrics},
        "changes": {m: _ends(position.changes[m]) for m in content.metrics if m in position.changes},
        "better": verdicts,
        "sentence": content.headline(position),
        "past": position.past_minimum,
        "users": None if users is None else [finite(users.worse_off.value), finite(users.better_off.value)],
    }


def _told(content: Content, position: Position, metric: str) -> str:
    """Write a change for its card: "−0.024 (−0.031 to −0.018), worse"."""
    change = content.change(position, metric)
    return f"{with_ends(metric, change)}, {VERDICTS[better(metric, change)]}"


def between(metric: str, ends: tuple[float, float]) -> str:
    """Write the ends of the interval of a value: "0.312 to 0.330"."""
    return " to ".join(written(metric, end) for end in ends)


def _ends(change: Change) -> list[float | None]:
    return [finite(x) for x in (change.difference, change.low, change.high)]


def _of_items(content: Content) -> Json:
    catalogue = content.catalogue
    if catalogue is None:
        return {}
    shown = shown_items(content)
    # `shown_items` includes all movers and examples, so the lookups below find them.
    row_of = {int(j): row for row, j in enumerate(shown)}
    bands = None if catalogue.popularity is None else band_of(catalogue.popularity)
    m = len(catalogue)
    # The axis of ranks is logarithmic, so the ranks in the page are spaced evenly on it.
    ranks = np.unique(np.round(np.geomspace(1, m, RANK_POINTS)).astype(np.int64))
    stops = []
    for position in content.positions:
        exposure = position.exposure if position.exposure is not None else np.zeros(m)
        gainers, losers = movers(content.before, position)
        stops.append({
            "lorenz": _rounded(lorenz_points(exposure)),
            "ranked": np.sort(exposure)[::-1][ranks - 1].astype(np.int64).tolist(),
            "bands": None if bands is None else _rounded(band_shares(exposure, bands)),
            "exposure": exposure[shown].astype(np.int64).tolist(),
            "gainers": [row_of[j] for j in gainers],
            "losers": [row_of[j] for j in losers],
            # Empty slots (-1) stay -1.
            "lists": None if position.lists is None
            else [[row_of.get(int(j), -1) for j in row] for row in position.lists],
        })  # fmt: skip
    groups = catalogue.groups
    items = {
        "total": m,
        "names": [cut(catalogue.names[j]) for j in shown],
        "groups": None if groups is None else [cut(str(groups[j]), LONGEST_GROUP) for j in shown],
        "popularity": None if catalogue.popularity is None else _counts(catalogue.popularity[shown]),
    }
    return {"items": items, "ranks": ranks.tolist(), "stops": stops, "examples": _examples(content, row_of)}


def _examples(content: Content, row_of: dict[int, int]) -> list[Json]:
    return [
        {
            "label": example.label,
            "history": [row_of[j] for j in seen(example.history)],
            "length": len(example.history),
            "targets": [row_of[j] for j in example.targets if j in row_of],
        }
        for example in content.examples
    ]


def _groups(content: Content) -> Json:
    shown = shown_groups(content)
    compared = next(p for p in content.positions if p.groups)
    chosen = [compared.groups[g] for g in shown]
    stops = []
    for position in content.positions:
        # The first stop is compared with nothing: its shares are the "before" of another stop.
        if position.groups:
            of = [position.groups[g].share for g in shown]
            stops.append({"shares": [finite(s.after) for s in of], "ends": [_ends(s) for s in of]})
        else:
            stops.append({"shares": [finite(g.share.before) for g in chosen], "ends": None})
    return {
        "total": len(compared.groups), "names": [cut(str(g.group)) for g in chosen],
        "sizes": [g.n_items for g in chosen], "stops": stops,
    }  # fmt: skip


def history_columns(content: Content) -> Json:
    """Return objective terms and residuals by epoch; None for epochs that did not record them."""
    history = content.history
    if history is None:
        return {}
    found: Json = {"verdict": history.verdict}
    for part in ("objective", "residuals"):
        names = dict.fromkeys(name for record in history.records for name in (record.get(part) or {}))
        columns = {name: [_number(x) for x in history.column(f"{part}.{name}")] for name in names}
        found[part] = {name: column for name, column in columns.items() if any(x is not None for x in column)}
    return found


def lorenz_points(exposure: Values) -> Values:
    """Return the Lorenz curve at evenly spaced shares of the catalogue."""
    curve = np.asarray(lorenz_curve(exposure))
    at: Values = np.interp(np.linspace(0, 1, LORENZ_POINTS), np.linspace(0, 1, len(curve)), curve)
    return at


def _rounded(values: Values) -> list[float | None]:
    # More digits than a chart can show would only make the page larger.
    return [None if math.isnan(x) else round(float(x), 5) for x in values]


def _counts(values: Values) -> list[float | int]:
    return [int(x) if x == int(x) else round(float(x), 2) for x in values.tolist()]


def _number(value: object) -> float | None:
    return finite(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


# -- which groups and items the page lists: all if there are few, else those that change or are shown most ------------


def shown_groups(content: Content, most: int = MOST_GROUPS) -> list[int]:
    """Return the positions of the groups in the page, the largest share at the first stop first."""
    compared = [position.groups for position in content.positions if position.groups]
    if not compared:
        return []
    count = len(compared[0])
    change = [max(abs(finite(groups[g].share.difference) or 0.0) for groups in compared) for g in range(count)]
    chosen = sorted(range(count), key=lambda g: (-change[g], g))[:most]
    return sorted(chosen, key=lambda g: (-(finite(compared[0][g].share.before) or 0.0), g))


def shown_items(content: Content, most: int = MOST_ITEMS) -> NDArray[np.int64]:
    """Return the positions of the items in the page, most exposed at the first stop first.

    Items that the page names (in example lists, as gainers or losers) are always included. The others are those with
    the most exposure at any stop.
    """
    exposures = np.stack([p.exposure for p in content.positions if p.exposure is not None])
    highest = exposures.max(axis=0)
    highest[_named(content)] = np.inf  # sorts them first
    chosen = np.argsort(-highest, kind="stable")[:most]
    ranks: NDArray[np.int64] = chosen[np.lexsort((chosen, -exposures[0][chosen]))]
    return ranks


def movers(first: Position, now: Position) -> tuple[list[int], list[int]]:
    """Return the items that gain and that lose most users, largest change first; ties by position."""
    if first.exposure is None or now.exposure is None:
        return [], []
    gain = now.exposure - first.exposure
    return _most(gain), _most(-gain)


def _most(gain: NDArray[np.float64]) -> list[int]:
    order = np.argsort(-gain, kind="stable")[:MOVERS]
    return [int(j) for j in order if gain[j] > 0]


def _named(content: Content) -> list[int]:
    named: set[int] = set()
    for position in content.positions:
        if position.lists is not None:
            named.update(position.lists.ravel().tolist())
        for part in movers(content.before, position):
            named.update(part)
    for example in content.examples:
        named.update(seen(example.history))
    named.discard(-1)
    return sorted(named)


def seen(history: Sequence[int]) -> Sequence[int]:
    """Return the part of a history that is shown."""
    return history[:HISTORY]


# -- bands: parts of the catalogue of equal size, by training popularity ----------------------------------------------


def band_of(popularity: Values, bands: int = BANDS) -> NDArray[np.int64]:
    """Return the band of every item, 0 for the least popular; of equal items, the higher index is in the lower band."""
    m = len(popularity)
    count = max(1, min(bands, m))
    codes = np.empty(m, dtype=np.int64)
    # `lexsort` sorts by its last key first. Bands differ in size by one item at most.
    codes[np.lexsort((-np.arange(m), popularity))] = np.arange(m) * count // max(m, 1)
    return codes


def band_shares(exposure: Values, codes: NDArray[np.int64]) -> Values:
    """Return the share of exposure of each band; NaN if there is no exposure."""
    totals = np.bincount(codes, weights=exposure)
    whole = totals.sum()
    shares: Values = totals / whole if whole > 0 else np.full(len(totals), np.nan)
    return shares
