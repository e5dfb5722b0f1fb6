// Example users' lists side by side: the first stop, and where the slider stands, with what changed marked.
function startLists() {
  const chooser = byId("example");
  if (!chooser) return;
  data.examples.forEach((example, k) => {
    const option = element("option", example.label);
    option.value = k;
    chooser.append(option);
  });
  chooser.addEventListener("change", updateLists);
  follow(updateLists);
}

function updateLists() {
  const k = Number(byId("example").value);
  const example = data.examples[k];
  const before = data.stops[0].lists[k].filter((row) => row >= 0);
  const now = stop().lists[k].filter((row) => row >= 0);
  byId("before-name").textContent = first().name;
  byId("now-name").textContent = current().name;
  const more = example.length - example.history.length;
  const names = example.history.map((row) => data.items.names[row]).join(" · ");
  byId("history").textContent = `History of this user: ${names}${more > 0 ? ` · and ${whole(more)} more` : ""}`;
  const entered = now.filter((row) => !before.includes(row)).length;
  byId("example-change").textContent = entered ? `${entered} of ${now.length} are new` : "nothing changes";
  fill(
    byId("list-before"),
    before.map((row, place) => listed(row, example, now.includes(row) ? null : "gone", place, now)),
  );
  fill(
    byId("list-now"),
    now.map((row, place) => listed(row, example, before.includes(row) ? "moved" : "new", place, before)),
  );
}

function listed(row, example, kind, place, other) {
  const entry = element("li", "", kind ?? "");
  entry.append(element("span", data.items.names[row], "title"));
  if (example.targets.includes(row)) {
    const hit = element("span", "★", "tag hit");
    hit.setAttribute("role", "img");
    hit.setAttribute("aria-label", "held out: the user chose it");
    entry.append(hit);
  }
  const rise = other.indexOf(row) - place;
  if (kind === "new") entry.append(element("span", "new", "tag new"));
  else if (kind === "gone") entry.append(element("span", "left", "tag gone"));
  else if (kind === "moved" && rise)
    entry.append(element("span", `${rise > 0 ? "▲" : "▼"}${Math.abs(rise)}`, "tag moved"));
  return entry;
}
