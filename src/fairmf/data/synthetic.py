"""Generate interactions with popular and rare items, active and inactive users, and tastes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from fairmf.data.events import Events, number_by_appearance
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.popularity import counts_with_gini, counts_with_total
from fairmf.errors import InvalidParameter
from fairmf.lazy import lazy_module
from fairmf.params import check_settings, setting, takes_keywords

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fairmf.data import synthetic_kernels
else:
    synthetic_kernels = lazy_module("fairmf.data.synthetic_kernels")

_ADJECTIVES = tuple(
    word
    for line in (
        "Quiet Golden Broken Distant Hidden Silver Burning Frozen Silent Crimson Restless Hollow",
        "Gentle Savage Velvet Paper Stolen Endless Forgotten Wandering Copper Bitter Honest Sudden",
        "Northern Southern Lonely Borrowed Painted Midnight Emerald Patient Reckless Shining Secret Tender",
        "Wicked Ancient Modern Invisible Scarlet Drifting Falling Rising Sleeping Laughing Second Last",
    )
    for word in line.split()
)
_THEMES = tuple(
    nouns.split()
    for nouns in (
        "Harbour Lighthouse Sailor Tide Anchor Island Captain Shore",
        "Starship Orbit Comet Android Galaxy Signal Colony Moon",
        "Detective Alibi Witness Verdict Clue Suspect Cellar Letter",
        "Kingdom Dragon Crown Sorcerer Sword Tower Oracle Forest",
        "Wedding Kiss Promise Valentine Bride Garden Dance Summer",
        "Soldier Trench Siege Convoy General Bunker Front Medal",
        "Saddle Canyon Sheriff Ranch Outlaw Desert Stagecoach Mustang",
        "Orchestra Piano Melody Singer Chorus Ballad Drummer Stage",
        "Kitchen Baker Vineyard Recipe Market Orchard Honey Feast",
        "Haunting Graveyard Shadow Mirror Whisper Attic Raven Fog",
        "Racer Champion Stadium Goalkeeper Marathon Boxer Summit Relay",
        "Clown Neighbour Cousin Landlord Umbrella Parrot Landslide Holiday",
    )
)
THEMES = (
    "Sea", "Space", "Crime", "Fantasy", "Romance", "War", "Western", "Music", "Food", "Horror", "Sport", "Comedy",
)  # fmt: skip
_THEME_OF = {noun: theme for theme, nouns in zip(THEMES, _THEMES, strict=True) for noun in nouns}
_FIRST_YEAR, _YEARS = 1950, 75
# Coprime with the number of titles a theme has, so that steps of this size visit each of them once.
_STEP = 10007


def titles(tastes: NDArray[np.integer]) -> list[str]:
    """Return a unique title for every item, such as "The Quiet Harbour (1987)"; its noun depends on the taste."""
    themes = np.asarray(tastes) % len(_THEMES)
    used = [0] * len(_THEMES)
    made = []
    for theme in themes.tolist():
        made.append(_title(theme, used[theme]))
        used[theme] += 1
    return made


def theme_of(title: str) -> str:
    """Return the theme of a title made here, by its noun: "Sea" for "The Quiet Harbour (1987)"."""
    return _THEME_OF[title.split()[2].rstrip(",")]


def _title(theme: int, number: int) -> str:
    nouns = _THEMES[theme]
    part, place = divmod(number, len(_ADJECTIVES) * len(nouns) * _YEARS)
    place = place * _STEP % (len(_ADJECTIVES) * len(nouns) * _YEARS)
    rest, year = divmod(place, _YEARS)
    adjective, noun = divmod(rest, len(nouns))
    sequel = f", Part {part + 1}" if part else ""
    return f"The {_ADJECTIVES[adjective]} {nouns[noun]}{sequel} ({_FIRST_YEAR + year})"


Seed: TypeAlias = int | np.random.SeedSequence | np.random.Generator
"""What NumPy takes as the source of random numbers."""
_FIRST_SECOND, _SECONDS = 1_577_836_800, 2 * 365 * 86_400  # two years from 2020-01-01 UTC
_MOST_USERS = 0.5  # an item that everybody has would say nothing about taste, so at most this share of users has it
_USUAL_GINI = 0.75
_SWAPS = 30  # random swaps that are tried to place an interaction that fits nobody


@dataclass(frozen=True)
class SyntheticEvents:
    """Hold the settings of `synthetic_events`, with their ranges."""

    n_users: int = setting(2000, "number of users", low=1, integer=True)
    n_items: int = setting(1000, "number of items", low=1, integer=True)
    n_interactions: int = setting(100_000, "number of interactions", low=1, integer=True)
    tastes: int = setting(12, "number of tastes; each item has one", low=1, integer=True)
    favourites: int = setting(3, "number of favourite tastes a user draws", low=1, integer=True)
    taste_strength: float = setting(0.8, "share of interactions within a user's favourites", low=0, high=1)
    popularity_gini: float | None = setting(
        None, "Gini of the items' numbers of interactions; None = 0.75 or near", low=0, high=1, choices=(None,)
    )
    activity_spread: float = setting(1.0, "standard deviation of log activity of users", low=0)
    min_per_user: int = setting(5, "least number of interactions of a user", low=0, integer=True)


class Tastes(TypedDict, total=False):
    """The fields of `SyntheticEvents` that are passed by name: what users like, and how often they act."""

    tastes: int
    favourites: int
    taste_strength: float
    popularity_gini: float | None
    activity_spread: float
    min_per_user: int


@takes_keywords(Tastes, of=SyntheticEvents)
def synthetic_events(
    n_users: int = 2000,
    n_items: int = 1000,
    n_interactions: int = 100_000,
    *,
    random_state: Seed = 0,
    **settings: Unpack[Tastes],
) -> Events:
    """Generate events with popular and rare items, active and inactive users, and tastes.

    User ids are the integers from 1. Item ids are titles such as "The Quiet Harbour (1987)", whose noun depends on the
    taste. Times are seconds since 1970.

    Parameters
    ----------
    n_users, n_items : int
    n_interactions : int
        The exact number of different (user, item) pairs.
    random_state : int, SeedSequence or Generator
        The same seed gives the same events.
    tastes : int
        Number of tastes; each item has one.
    favourites : int
        Number of favourite tastes that each user draws.
    taste_strength : float
        Share of a user's interactions within the favourites.
    popularity_gini : float, optional
        Gini index of the items' numbers of interactions, which follow a power law. None: 0.75, or the nearest value
        that so dense a matrix allows. Every item has at least one interaction if there are enough.
    activity_spread : float
        Standard deviation of the logarithm of users' numbers of interactions.
    min_per_user : int
        Least number of interactions of a user.

    Returns
    -------
    Events
        In order of time.

    Raises
    ------
    InvalidParameter
        If a setting is out of range, or there are too many or too few interactions for so many users and items.

    Examples
    --------
    >>> synthetic_events(n_users=50, n_items=40, n_interactions=500)
    Events(500 rows, 50 users, 40 items, with times)
    """
    plan = SyntheticEvents(n_users, n_items, n_interactions, **settings)
    check_settings(plan)
    _check_possible(plan)
    rng = _generator(random_state)
    per_user = _activity(plan, rng)
    per_item = _popularity(plan, rng)
    item_tastes = _item_tastes(plan, rng)
    users = _deal(per_user, per_item, item_tastes, plan, rng)
    return _as_events(users, per_item, item_tastes, plan, rng)


@takes_keywords(Tastes, of=SyntheticEvents)
def synthetic(
    n_users: int = 2000,
    n_items: int = 1000,
    n_interactions: int = 100_000,
    *,
    random_state: Seed = 0,
    **settings: Unpack[Tastes],
) -> Interactions:
    """Generate binary Interactions with popular and rare items, active and inactive users, and tastes.

    Parameters
    ----------
    n_users, n_items, n_interactions : int
    random_state, tastes, favourites, taste_strength, popularity_gini, activity_spread, min_per_user
        Those of `synthetic_events`.

    Returns
    -------
    Interactions

    Examples
    --------
    >>> synthetic(n_users=50, n_items=40, n_interactions=500)
    Interactions(50 users x 40 items, 500 binary)
    """
    events = synthetic_events(n_users, n_items, n_interactions, random_state=random_state, **settings)
    return Interactions.from_events(events)


def _check_possible(plan: SyntheticEvents) -> None:
    n, m, total = plan.n_users, plan.n_items, plan.n_interactions
    low, high = plan.min_per_user * n, m * _most_per_item(plan)
    if not low <= total <= high:
        raise InvalidParameter(
            f"'n_interactions' must be from {low:,} ({plan.min_per_user} per user) to {high:,} (half of all pairs) "
            f"for {n:,} users and {m:,} items. Got {total:,} instead."
        )


def _most_per_item(plan: SyntheticEvents) -> int:
    return max(1, int(_MOST_USERS * plan.n_users))


def _generator(random_state: Seed) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(
            f"The 'random_state' parameter of synthetic_events must be an integer >= 0. Got {random_state!r} instead.",
            parameter="random_state",
        ) from error


def _activity(plan: SyntheticEvents, rng: np.random.Generator) -> NDArray[np.int64]:
    mean = plan.n_interactions / plan.n_users
    # A user with nearly all items would leave too few ways to place the other users.
    most = min(max(plan.n_items // 4, int(np.ceil(2 * mean)), plan.min_per_user), plan.n_items)
    activity = np.exp(plan.activity_spread * rng.standard_normal(plan.n_users))
    return counts_with_total(activity, plan.n_interactions, plan.min_per_user, most)


def _popularity(plan: SyntheticEvents, rng: np.random.Generator) -> NDArray[np.int64]:
    least = 1 if plan.n_interactions >= plan.n_items else 0
    most = _most_per_item(plan)
    wanted = _USUAL_GINI if plan.popularity_gini is None else plan.popularity_gini
    nearest = plan.popularity_gini is None
    counts = counts_with_gini(plan.n_items, plan.n_interactions, wanted, least, most, nearest)
    return rng.permutation(counts)


def _item_tastes(plan: SyntheticEvents, rng: np.random.Generator) -> NDArray[np.int64]:
    count = min(plan.tastes, plan.n_items)
    # Some tastes have many items, some few.
    size = 1 / np.sqrt(np.arange(1, count + 1))
    others = rng.choice(count, size=plan.n_items - count, p=size / size.sum())
    return rng.permutation(np.concatenate([np.arange(count), others]))  # every taste has an item


def _deal(
    per_user: NDArray[np.int64],
    per_item: NDArray[np.int64],
    tastes: NDArray[np.int64],
    plan: SyntheticEvents,
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """Assign users to items so that both have the wanted numbers; return the users of item 0, then of item 1, ...

    Three steps: give each item users who want its taste, then users who are left, then swap until all fit.
    """
    wishes, favourites = _wishes(per_user, per_item, tastes, plan, rng)
    pool, bounds = _pools(per_user, wishes, favourites, int(tastes.max()) + 1, rng)
    heads, ends = bounds[:-1].copy(), bounds[1:]
    demand = np.bincount(tastes, weights=per_item)
    # Share of the interactions with items of each taste that come from users who want that taste.
    share = np.diff(bounds)[:-1] / np.maximum(demand, 1)
    # Random rounding keeps the sum right on average, also for items with one or two interactions.
    from_taste = np.floor(per_item * share[tastes] + rng.random(len(per_item))).astype(np.int64)
    from_taste = np.minimum(from_taste, per_item)

    starts = np.concatenate([[0], np.cumsum(per_item)])
    order = np.argsort(-per_item, kind="stable")
    out = np.empty(int(starts[-1]), dtype=np.int32)
    filled = np.zeros(len(per_item), dtype=np.int64)
    marks = np.full(len(per_user), -1, dtype=np.int32)
    synthetic_kernels.deal(order, starts, tastes, from_taste, pool, heads, ends, marks, out, filled)

    # Second step: everybody who is left, in one pool.
    left = rng.permutation(np.concatenate([pool[a:b] for a, b in zip(heads, ends, strict=True)]))
    heads, ends = np.zeros(1, dtype=np.int64), np.array([len(left)])
    marks.fill(-1)
    synthetic_kernels.fill(order, starts, left, heads, ends, marks, out, filled)

    # Third step: the few users whom no item with a free place can take.
    users = left[heads[0] :]
    items = np.repeat(np.arange(len(per_item)), per_item - filled)
    candidates = rng.integers(0, len(out), size=(len(users), _SWAPS))
    item_of = np.repeat(np.arange(len(per_item), dtype=np.int32), per_item)
    marks.fill(-1)
    synthetic_kernels.repair(items, users, candidates, starts, item_of, marks, out, filled)
    return out


def _wishes(
    per_user: NDArray[np.int64],
    per_item: NDArray[np.int64],
    tastes: NDArray[np.int64],
    plan: SyntheticEvents,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw how many interactions each user wants in each favourite taste (users x favourites), and which these are."""
    demand = np.bincount(tastes, weights=per_item)
    sizes = np.bincount(tastes)
    # Tastes are drawn in proportion to the interactions of their items, so that popularity stays as planned.
    favourites = rng.choice(len(demand), size=(len(per_user), plan.favourites), p=demand / demand.sum())
    wishes = np.empty(favourites.shape, dtype=np.int64)
    left = rng.binomial(per_user, plan.taste_strength)
    for k in range(plan.favourites):
        # The first favourite gets half, the second half of the rest, the last what remains.
        wishes[:, k] = left if k == plan.favourites - 1 else rng.binomial(left, 0.5)
        left = left - wishes[:, k]
    wishes = np.minimum(wishes, sizes[favourites] // 3)  # no user exhausts a taste
    supply = np.bincount(favourites.ravel(), weights=wishes.ravel(), minlength=len(demand))
    # Users must not want more of a taste than its items have; 5 % stays for users without that taste.
    keep = np.minimum(1.0, 0.95 * demand / np.maximum(supply, 1))
    return rng.binomial(wishes, keep[favourites]), favourites


def _pools(
    per_user: NDArray[np.int64],
    wishes: NDArray[np.int64],
    favourites: NDArray[np.int64],
    n_tastes: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Shuffle a pool of users for each taste, and one for any taste; return all in one array, and where each begins.

    A user is in a pool once for each interaction that is wanted there.
    """
    everybody = np.arange(len(per_user), dtype=np.int32)
    pools = []
    for taste in range(n_tastes):
        pool = [np.repeat(everybody, wishes[:, k] * (favourites[:, k] == taste)) for k in range(wishes.shape[1])]
        pools.append(np.concatenate(pool))
    pools.append(np.repeat(everybody, per_user - wishes.sum(axis=1)))
    for pool_of_taste in pools:
        rng.shuffle(pool_of_taste)
    bounds = np.concatenate([[0], np.cumsum([len(pool_of_taste) for pool_of_taste in pools])])
    return np.concatenate(pools), bounds.astype(np.int64)


def _as_events(
    users: NDArray[np.int32],
    per_item: NDArray[np.int64],
    tastes: NDArray[np.int64],
    plan: SyntheticEvents,
    rng: np.random.Generator,
) -> Events:
    pairs = users.astype(np.int64)
    pairs *= plan.n_items
    pairs += np.repeat(np.arange(plan.n_items, dtype=np.int32), per_item)
    # Pairs as single numbers (user * n_items + item) take less memory to shuffle.
    # Shuffled, because times ascend below: otherwise all events of an item would follow each other.
    rng.shuffle(pairs)
    users, user_order = number_by_appearance((pairs // plan.n_items).astype(np.int32), plan.n_users)
    pairs %= plan.n_items
    items, item_order = number_by_appearance(pairs.astype(np.int32), plan.n_items)
    del pairs
    times = rng.integers(_FIRST_SECOND, _FIRST_SECOND + _SECONDS, size=len(users))
    times.sort()
    names = np.array(titles(tastes), dtype=object)
    return Events(users, items, Ids(user_order + 1), Ids(names[item_order]), times=times, time_unit="s")
