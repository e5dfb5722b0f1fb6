// The item table: search, sort, pages. Exposure "now" follows the slider.
const PER_PAGE = 20;
const itemView = { sort: "before", ascending: false, page: 0, words: "" };

function itemColumns() {
  const { names, groups, popularity } = data.items;
  const before = data.stops[0].exposure;
  const now = stop().exposure;
  return [
    { key: "name", title: "item", of: (row) => names[row], text: true },
    ...(groups ? [{ key: "group", title: "group", of: (row) => groups[row], text: true, minor: true }] : []),
    ...(popularity ? [{ key: "popularity", title: "interactions", of: (row) => popularity[row], minor: true }] : []),
    { key: "before", title: first().name, of: (row) => before[row] },
    { key: "now", title: current().name, of: (row) => now[row] },
    { key: "change", title: "change", of: (row) => now[row] - before[row], signed: true },
  ];
}

function startItems() {
  if (!byId("item-table") || !data.stops) return;
  const shown = data.items.names.length;
  byId("items-told").textContent =
    shown < data.items.total
      ? `Listed are ${whole(shown)} of ${whole(data.items.total)} items: those shown to most users at any stop.`
      : `All ${whole(shown)} items are listed.`;
  byId("search").addEventListener("input", (event) => {
    itemView.words = event.target.value.trim().toLowerCase();
    itemView.page = 0;
    drawItems();
  });
  [
    ["previous", -1],
    ["next", 1],
  ].forEach(([id, step]) =>
    byId(id).addEventListener("click", () => {
      itemView.page += step;
      drawItems();
    }),
  );
  follow(drawItems);
}

function foundItems(columns) {
  const texts = columns.filter((column) => column.text);
  const rows = data.items.names
    .map((_, row) => row)
    .filter((row) => !itemView.words || texts.some((column) => column.of(row).toLowerCase().includes(itemView.words)));
  const by = columns.find((column) => column.key === itemView.sort);
  const order = by.text ? (a, b) => by.of(a).localeCompare(by.of(b)) : (a, b) => by.of(a) - by.of(b);
  return rows.sort((a, b) => (itemView.ascending ? order(a, b) : order(b, a)) || a - b);
}

function drawItems() {
  const columns = itemColumns();
  const rows = foundItems(columns);
  const pages = Math.max(1, Math.ceil(rows.length / PER_PAGE));
  itemView.page = Math.min(Math.max(itemView.page, 0), pages - 1);
  const start = itemView.page * PER_PAGE;
  const visible = rows.slice(start, start + PER_PAGE);
  const focused = document.activeElement?.dataset?.sort;
  const cells = visible.map((row) => columns.map((column) => itemText(column, row)));
  const frame = numbersTable(
    "Users whose list holds the item",
    columns.map((column) => column.title),
    cells,
  );
  frame.querySelectorAll("thead th").forEach((cell, k) => sortable(cell, columns[k]));
  columns.forEach((column, k) =>
    frame.querySelectorAll(`tr > :nth-child(${k + 1})`).forEach((cell) => {
      cell.classList.toggle("text", Boolean(column.text));
      cell.classList.toggle("minor", Boolean(column.minor));
    }),
  );
  frame.querySelectorAll("tbody tr").forEach((row, k) => colourChange(row.lastChild, columns.at(-1).of(visible[k])));
  fill(byId("item-table"), [frame]);
  if (focused) frame.querySelector(`[data-sort="${focused}"]`)?.focus();
  byId("found").textContent = `${whole(rows.length)} ${rows.length === 1 ? "item" : "items"} found`;
  byId("page-told").textContent = rows.length
    ? `${whole(start + 1)} to ${whole(start + visible.length)} of ${whole(rows.length)}`
    : "no item";
  byId("previous").disabled = itemView.page === 0;
  byId("next").disabled = itemView.page === pages - 1;
}

function itemText(column, row) {
  const value = column.of(row);
  if (column.text) return value;
  return column.signed ? (value > 0 ? "+" : value < 0 ? "−" : "") + whole(Math.abs(value)) : whole(value);
}

function sortable(cell, column) {
  const button = element("button", column.title);
  button.type = "button";
  button.dataset.sort = column.key;
  const sorted = itemView.sort === column.key;
  cell.setAttribute("aria-sort", sorted ? (itemView.ascending ? "ascending" : "descending") : "none");
  button.addEventListener("click", () => {
    itemView.ascending = sorted ? !itemView.ascending : Boolean(column.text);
    itemView.sort = column.key;
    itemView.page = 0;
    drawItems();
  });
  fill(cell, [button]);
}

function colourChange(cell, value) {
  if (value) cell.classList.add(value > 0 ? "up" : "down");
}
