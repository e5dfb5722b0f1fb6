"""docs/datasets.md says what the registry says. Run as a program, this file writes its tables anew."""

import re
from pathlib import Path

from fairmf.data.datasets import datasets

PAGE = Path(__file__).resolve().parents[2] / "docs" / "datasets.md"


def table():
    lines = [
        "| name | what | users | items | rows | download | checksum | filter |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in datasets().values():
        rules = [f"rating > {entry.rating_above}"] if entry.rating_above is not None else []
        rules += [f"{name} {value}" for name in ("min_item", "min_user") if (value := getattr(entry, name))]
        size = f"[{entry.megabytes} MB]" if entry.megabytes else "[file]"
        cells = [f"`{entry.name}`", f"[{entry.title}]({entry.home})"]
        cells += [f"{count:,}" for count in (entry.users, entry.items, entry.interactions)]
        cells += [f"{size}({entry.addresses[0]})", entry.checksum, ", ".join(rules) or "none"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def terms():
    by_text = {}
    for entry in datasets().values():
        by_text.setdefault(entry.licence, []).append(f"`{entry.name}`")
    return "\n".join(f"* {', '.join(names)}: {text}" for text, names in by_text.items())


def written(text):
    text = re.sub(
        r"(<!-- table: .*? -->\n).*?(<!-- end -->)",
        lambda m: m[1] + table() + "\n" + m[2],
        text,
        count=1,
        flags=re.DOTALL,
    )
    return re.sub(
        r"(<!-- terms -->\n).*?(<!-- end -->)", lambda m: m[1] + terms() + "\n" + m[2], text, count=1, flags=re.DOTALL
    )


def test_the_page_agrees_with_the_registry():
    text = PAGE.read_text(encoding="utf-8")
    assert text == written(text), f"run `python {Path(__file__).relative_to(PAGE.parents[1])}`"
    assert all(f"| `{name}` |" in text for name in datasets())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
