// Who gains and who loses: tenths of the catalogue by popularity, and the items that change most.
function startBands() {
  const count = data.stops[0].bands.length;
  const names = data.stops[0].bands.map((_, k) =>
    k === 0 ? "least popular" : k === count - 1 ? "most popular" : String(k + 1),
  );
  const bars = (name, at, colourName) => ({
    type: "bar",
    name,
    data: at.bands,
    itemStyle: { color: colour(colourName) },
    barGap: "5%",
    barCategoryGap: "25%",
  });
  const bands = chart("chart-bands", () => ({
    legend: legend(),
    grid: { ...shared().grid, top: 34 },
    xAxis: axis("", {
      type: "category",
      data: names,
      axisLabel: {
        color: colour("soft"),
        fontSize: 12,
        interval: 0,
        lineHeight: 15,
        margin: 10,
        formatter: (name, k) => (k === 0 ? "least\npopular" : k === count - 1 ? "most\npopular" : ""),
        hideOverlap: false,
      },
    }),
    yAxis: yAxis("", { axisLabel: { color: colour("soft"), formatter: (x) => percent(x, 0) } }),
    tooltip: {
      ...shared().tooltip,
      trigger: "axis",
      formatter: (events) =>
        tip([
          `tenth ${events[0].dataIndex + 1} of ${count} by popularity`,
          ...events.map((e) => `${nameOf(e)}: ${percent(e.value)}`),
        ]),
    },
    series: [
      bars(first().name, data.stops[0], "then"),
      ...(state.position ? [bars(current().name, stop(), "now")] : []),
    ],
  }));
  follow(() => {
    bands.draw();
    const ends = (s) =>
      `${percent(s.bands[0])} to the least popular part, ${percent(s.bands[count - 1])} to the most popular`;
    bands.describe(
      `Share of exposure by popularity: ${first().name} gives ${ends(data.stops[0])}; ${current().name} ${ends(stop())}.`,
    );
    const rows = names.map((name, k) => [name, percent(data.stops[0].bands[k]), percent(stop().bands[k])]);
    fill(byId("numbers-bands"), [
      numbersTable("Share of exposure by tenth of the catalogue", ["tenth", first().name, current().name], rows),
    ]);
  });
}

function updateMovers() {
  const told = (row) => {
    const [before, now] = [data.stops[0].exposure[row], stop().exposure[row]];
    const entry = element("li");
    entry.append(
      element("span", data.items.names[row], "title"),
      element("span", `${whole(before)} to ${whole(now)}`, "count"),
    );
    return entry;
  };
  [
    ["gainers", stop().gainers],
    ["losers", stop().losers],
  ].forEach(([id, rows]) => {
    fill(byId(id), rows.length ? rows.map(told) : [element("li", "nobody")]);
  });
  const users = current().users;
  byId("users-change").textContent =
    users && users[0] !== null
      ? `Compared with ${first().name}, ${metricOf(data.quality).title} falls for ${percent(users[0])} of the users with held-out items and rises for ${percent(users[1])}.`
      : "";
}
