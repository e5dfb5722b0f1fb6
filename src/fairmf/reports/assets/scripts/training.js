// What training did, epoch by epoch.
const OBJECTIVE_WORDS = {
  total: "total",
  observed: "observed",
  unobserved: "unobserved",
  l2: "L2",
  fairness: "fairness",
};

function startTraining() {
  if (!data.history) return;
  const { objective, residuals } = data.history;
  const order = Object.keys(OBJECTIVE_WORDS).filter((name) => objective[name]);
  curves(
    "objective",
    order.map((name) => [OBJECTIVE_WORDS[name], objective[name]]),
    "value",
  );
  const parts = Object.entries(residuals).map(([name, column]) => [name, column.map((x) => (x > 0 ? x : null))]);
  if (parts.length) curves("residuals", parts, "log");
  else byId("figure-residuals").remove();
}

function curves(id, columns, type) {
  const epochs = columns.length ? columns[0][1].length : 0;
  const compact = (x) => (Math.abs(x) >= 1e4 || (x !== 0 && Math.abs(x) < 1e-2) ? x.toExponential(1) : whole(x));
  const ends = columns.map(([, column]) => column.findLast((x) => x !== null) ?? 1);
  const all = columns.flatMap(([, column]) => column.filter((x) => x !== null));
  const scale = type === "log" ? Math.log10 : (x) => x;
  const [low, high] = [type === "log" ? scale(Math.min(...all)) : 0, scale(Math.max(...all))];
  const shifts = spreadApart(ends.map((x) => (220 * (high - scale(x))) / (high - low || 1)));
  const drawn = chart(`chart-${id}`, () => ({
    grid: { ...shared().grid, right: 92, bottom: 26 },
    xAxis: axis("epoch", { min: 1, max: Math.max(epochs, 2), minInterval: 1 }),
    yAxis: yAxis("", { type, axisLabel: { color: colour("soft"), fontSize: 12, formatter: compact } }),
    tooltip: {
      ...shared().tooltip,
      trigger: "axis",
      formatter: (events) =>
        tip([
          `epoch ${events[0].value[0]}`,
          ...events.map((e) => `${nameOf(e)}: ${e.value[1] === null ? "–" : e.value[1].toPrecision(5)}`),
        ]),
    },
    series: columns.map(([name, column], k) =>
      line(
        name,
        column.map((y, epoch) => [epoch + 1, y]),
        `series-${1 + (k % 6)}`,
        {
          label: name,
          shift: shifts[k],
          connectNulls: true,
          showSymbol: epochs < 3,
        },
      ),
    ),
  }));
  drawn.draw();
  const last = columns.map(([name, column]) => `${name} ${column.at(-1)?.toPrecision(4) ?? "unknown"}`);
  drawn.describe(`${id} over ${epochs} epochs; at the end ${last.join(", ")}.`);
  const step = Math.ceil(epochs / 20);
  const rows = Array.from({ length: epochs }, (_, k) => k)
    .filter((k) => k % step === 0 || k === epochs - 1)
    .map((k) => [String(k + 1), ...columns.map(([, column]) => (column[k] === null ? "–" : column[k].toPrecision(5)))]);
  fill(byId(`numbers-${id}`), [numbersTable(`${id} by epoch`, ["epoch", ...columns.map(([name]) => name)], rows)]);
}
