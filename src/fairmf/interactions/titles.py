"""Readable titles for made-up items. Each theme has its own nouns, so that a reader sees the tastes in a list."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
    """A unique title for every item, such as "The Quiet Harbour (1987)"; the noun tells its taste (modulo twelve)."""
    themes = np.asarray(tastes) % len(_THEMES)
    used = [0] * len(_THEMES)
    made = []
    for theme in themes.tolist():
        made.append(_title(theme, used[theme]))
        used[theme] += 1
    return made


def theme_of(title: str) -> str:
    """What a title made here is about, by its noun: "Sea" for "The Quiet Harbour (1987)"."""
    return _THEME_OF[title.split()[2].rstrip(",")]


def _title(theme: int, number: int) -> str:
    nouns = _THEMES[theme]
    part, place = divmod(number, len(_ADJECTIVES) * len(nouns) * _YEARS)
    place = place * _STEP % (len(_ADJECTIVES) * len(nouns) * _YEARS)
    rest, year = divmod(place, _YEARS)
    adjective, noun = divmod(rest, len(nouns))
    sequel = f", Part {part + 1}" if part else ""
    return f"The {_ADJECTIVES[adjective]} {nouns[noun]}{sequel} ({_FIRST_YEAR + year})"
