// Groups of items (providers, genres): shares of the exposure at the first stop and where the slider stands.
const BARS = 12;

function startGroups() {
  if (!data.groups) return;
  const { names, sizes, stops, total } = data.groups;
  const shown = Math.min(BARS, names.length);
  byId("groups-told").textContent =
    names.length < total
      ? `The ${shown} largest of ${whole(total)} groups; the table has the ${whole(names.length)} that change most.`
      : shown < names.length
        ? `The ${shown} largest of ${whole(names.length)} groups; all are in the table.`
        : "";
  byId("chart-groups").style.height = `${Math.max(12, 2.1 * shown + 4)}rem`;
  const bars = (name, at, colourName) => ({
    type: "bar",
    name,
    data: at.shares.slice(0, shown),
    itemStyle: { color: colour(colourName) },
    barGap: "5%",
    barCategoryGap: "25%",
  });
  const groups = chart("chart-groups", () => ({
    legend: legend(),
    grid: { ...shared().grid, top: 34 },
    xAxis: axis("", { axisLabel: { color: colour("soft"), formatter: (x) => percent(x, 0) } }),
    yAxis: axis("", {
      type: "category",
      inverse: true,
      data: names.slice(0, shown),
      splitLine: { show: false },
      axisLabel: { color: colour("ink"), width: 110, overflow: "truncate", interval: 0 },
    }),
    tooltip: {
      ...shared().tooltip,
      trigger: "axis",
      formatter: (events) =>
        tip([names[events[0].dataIndex], ...events.map((e) => `${nameOf(e)}: ${percent(e.value)}`)]),
    },
    series: [
      bars(first().name, stops[0], "then"),
      ...(state.position ? [bars(current().name, stops[state.position], "now")] : []),
    ],
  }));
  follow(() => {
    groups.draw();
    groups.describe(
      `Share of exposure of ${shown} groups at ${first().name} and ${current().name}; the table below has the numbers.`,
    );
    const now = stops[state.position];
    const rows = names.map((name, g) => [
      name,
      whole(sizes[g]),
      percent(stops[0].shares[g]),
      percent(now.shares[g]),
      groupChange(stops[0].shares[g], now.shares[g], now.ends?.[g]),
    ]);
    fill(byId("group-table"), [
      numbersTable("Share of the exposure", ["group", "items", first().name, current().name, "change, points"], rows),
    ]);
  });
}

// The change of the shares as they are written, so that they add up, with the ends of its interval.
function groupChange(before, after, ends) {
  if (!ends || ends[0] === null) return "–";
  const difference = signed(parseFloat(percent(after)) - parseFloat(percent(before)), 1);
  const [low, high] = ends.slice(1).map((end) => (end === null ? null : signed(100 * end, 1)));
  return low === null ? difference : `${difference} (${low} to ${high})`;
}
