// Numbers as they are written in the sentences.
const whole = (value) => value.toLocaleString("en");
const percent = (value, digits = 1) => (value === null ? "–" : `${(100 * value).toFixed(digits)}%`);

function signed(value, digits) {
  const text = value.toFixed(digits);
  if (Number(text) === 0) return (0).toFixed(digits);
  return value > 0 ? `+${text}` : text.replace("-", "−");
}

function written(metric, value) {
  if (value === null || value === undefined) return "–";
  return metric.share ? percent(value) : value.toFixed(3);
}

const metricOf = (label) => data.metrics.find((metric) => metric.label === label);

// A table of plain texts; the first cell of a row is its heading.
function numbersTable(caption, head, rows) {
  const table = element("table");
  table.append(element("caption", caption));
  const top = element("tr");
  head.forEach((text) => {
    const cell = element("th", text);
    cell.scope = "col";
    top.append(cell);
  });
  table.append(element("thead"), element("tbody"));
  table.tHead.append(top);
  rows.forEach(([name, ...cells]) => {
    const row = element("tr");
    const heading = element("th", name);
    heading.scope = "row";
    row.append(heading, ...cells.map((text) => element("td", text)));
    table.tBodies[0].append(row);
  });
  const frame = element("div", "", "wide");
  frame.tabIndex = 0;
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", caption);
  frame.append(table);
  return frame;
}
