// How exposure is spread: Lorenz curve and exposure by rank.
const stop = () => data.stops[state.position];

function startSpread() {
  if (!data.stops) return;
  startLorenz();
  startRanked();
  if (data.stops[0].bands) startBands();
  else byId("figure-bands").remove();
  follow(updateMovers);
}

// The first stop in grey behind the present one; one line where they are the same.
function thenAndNow(points, more = {}) {
  const drawn = [
    line(first().name, points(data.stops[0]), "then", { lineStyle: { width: 2, color: colour("then") }, ...more }),
  ];
  if (state.position) drawn.push(line(current().name, points(stop()), "now", more));
  return drawn;
}

function legend() {
  const names = state.position ? [first().name, current().name] : [first().name];
  return {
    data: names.map((name) => ({ name, icon: "roundRect" })),
    top: 0,
    right: 0,
    itemWidth: 18,
    itemHeight: 8,
    textStyle: { color: colour("ink"), fontSize: 12 },
    selectedMode: false,
  };
}

function startLorenz() {
  const last = data.stops[0].lorenz.length - 1;
  // A function: colours are read when it is drawn.
  const share = () => ({
    type: "value",
    min: 0,
    max: 1,
    axisLabel: { color: colour("soft"), formatter: (x) => percent(x, 0) },
  });
  const lorenz = chart("chart-lorenz", () => ({
    legend: legend(),
    grid: { ...shared().grid, top: 34, bottom: 26 },
    xAxis: axis("share of the catalogue, least shown first", share()),
    yAxis: yAxis("", share()),
    tooltip: {
      ...shared().tooltip,
      trigger: "axis",
      formatter: (events) =>
        tip([
          `${percent(events[0].value[0], 0)} of the catalogue shown least`,
          ...events.filter((e) => nameOf(e) !== "even").map((e) => `${nameOf(e)}: ${percent(e.value[1])}`),
        ]),
    },
    series: [
      {
        type: "line",
        name: "even",
        data: [
          [0, 0],
          [1, 1],
        ],
        showSymbol: false,
        silent: true,
        lineStyle: { width: 1, type: "dashed", color: colour("soft") },
        itemStyle: { color: colour("soft") },
      },
      ...thenAndNow((at) => at.lorenz.map((y, k) => [k / last, y])),
    ],
  }));
  follow(() => {
    lorenz.draw();
    const half = (at) => percent(at.lorenz[Math.round(last / 2)]);
    lorenz.describe(
      `Lorenz curves: the least-shown half of the catalogue has ${half(data.stops[0])} of the exposure at ${first().name}, ${half(stop())} at ${current().name}.`,
    );
    const rows = [0.1, 0.2, 0.5, 0.7, 0.8, 0.9].map((at) => [
      percent(at, 0),
      ...[data.stops[0], stop()].map((s) => percent(s.lorenz[Math.round(at * last)])),
    ]);
    fill(byId("numbers-lorenz"), [
      numbersTable(
        "Share of exposure of the items shown least",
        ["items", first().name, current().name],
        rows,
      ),
    ]);
  });
}

function startRanked() {
  const ranked = chart("chart-ranked", () => ({
    legend: legend(),
    grid: { ...shared().grid, top: 34, bottom: 26 },
    xAxis: axis("rank of the item by exposure", { type: "log", min: 1, max: data.items.total }),
    yAxis: yAxis("users", { type: "log", min: 1 }),
    tooltip: {
      ...shared().tooltip,
      trigger: "axis",
      formatter: (events) =>
        tip([
          `item number ${whole(events[0].value[0])}`,
          ...events.map((e) => `${nameOf(e)}: ${whole(e.value[1])} users`),
        ]),
    },
    series: thenAndNow((at) => at.ranked.map((y, k) => [data.ranks[k], y]).filter(([, y]) => y > 0)),
  }));
  follow(() => {
    ranked.draw();
    ranked.describe(
      `Exposure by rank: the most shown item reaches ${whole(data.stops[0].ranked[0])} users at ${first().name}, ${whole(stop().ranked[0])} at ${current().name}.`,
    );
    const rows = data.ranks
      .map((rank, k) => [whole(rank), ...[data.stops[0], stop()].map((s) => whole(s.ranked[k]))])
      .filter((_, k) => k % 4 === 0);
    fill(byId("numbers-ranked"), [numbersTable("Users reached", ["rank", first().name, current().name], rows)]);
  });
}
