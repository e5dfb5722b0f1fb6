// The slider, figures, the sentence that is read out, and the chart of quality against inequality.
function startDial() {
  const slider = byId("slider");
  if (!slider) return;
  slider.addEventListener("input", () => moveTo(Number(slider.value)));
  follow(() => {
    const now = current();
    slider.value = state.position;
    slider.setAttribute("aria-valuetext", now.name);
    byId("stop").textContent = now.name;
    byId("knob-figures").textContent = [data.quality, data.inequality]
      .map((label) => `${metricOf(label).title} ${now.written[label]}`)
      .join("\n");
    byId("sentence").textContent = now.past
      ? `${now.sentence} This ${data.knob} is past the lowest Gini.`
      : now.sentence;
    updateCards(now);
    markRow();
  });
  startFront();
}

function updateCards(now) {
  document.querySelectorAll(".card").forEach((card) => {
    const label = card.dataset.metric;
    const verdict = now.better[label];
    card.classList.toggle("better", verdict === true);
    card.classList.toggle("worse", verdict === false);
    card.querySelector(".value").textContent = now.written[label];
    card.querySelector(".within").textContent = now.ends[label] ? `interval ${now.ends[label]}` : "";
    card.querySelector(".change").textContent = now.changed[label] ?? "the first stop";
  });
}

function markRow() {
  document.querySelectorAll(".by-stop tbody").forEach((body) => {
    [...body.rows].forEach((row, k) => row.classList.toggle("current", k === state.position));
  });
}

function startFront() {
  const up = metricOf(data.quality);
  const across = metricOf(data.inequality);
  const at = (position) => [position.values[across.label], position.values[up.label]];
  if (data.series.length) byId("front-others").textContent = `; the other marks: ${data.series.map((series) => series.name).join(", ")}`;
  let selected = {};
  const front = chart("chart-front", () => ({
    xAxis: axis(`${across.title}: inequality of exposure${data.users ? `, ${data.users.split(" (")[0]}` : ""}`, { scale: true }),
    yAxis: yAxis(up.title, { scale: true }),
    tooltip: { ...shared().tooltip, formatter: frontTip },
    grid: { ...shared().grid, right: 30, bottom: 26 + legendHeight(front) },
    legend: {
      ...legend(),
      data: data.series.map((series) => series.name),
      top: "auto",
      right: "auto",
      left: "center",
      bottom: 0,
      itemWidth: 13,
      itemHeight: 13,
      itemGap: 14,
      selectedMode: true,
      selected,
      inactiveColor: colour("then"),
    },
    series: [
      line("slider", data.positions.map(at), "now", { showSymbol: true, symbolSize: 10, cursor: "pointer", z: 3 }),
      ...data.series.map(otherSeries),
      {
        type: "scatter",
        name: "where the slider stands",
        data: [at(current())],
        symbolSize: 20,
        z: 4,
        itemStyle: { color: "transparent", borderColor: colour("ink"), borderWidth: 2.5 },
        label: {
          show: true,
          formatter: () => current().name,
          ...beside(at(current())[0]),
          color: colour("ink"),
          fontSize: 13,
          fontWeight: 600,
          textBorderColor: colour("card"), // a halo: the line may pass behind the words
          textBorderWidth: 3,
        },
        silent: true,
      },
    ],
  }));
  front.drawn.on("legendselectchanged", (event) => {
    selected = event.selected;
  });
  front.drawn.on("click", (event) => event.seriesIndex === 0 && moveTo(event.dataIndex));
  follow(() => {
    front.draw();
    const told = [up, across].map((metric) => `${metric.title} ${current().written[metric.label]}`);
    front.describe(
      `Quality against inequality of exposure at ${data.positions.length} stops; at ${current().name} ${told.join(", ")}.`,
    );
  });
}

// The curve rises to the right: below it on the left half, above it on the right half there is room for words.
function beside(x) {
  const all = data.positions.map((position) => position.values[data.inequality]);
  const left = x < (Math.min(...all) + Math.max(...all)) / 2;
  return left
    ? { position: "right", distance: 8, offset: [0, 12] }
    : { position: "left", distance: 8, offset: [0, -12] };
}

function otherSeries(series, k) {
  const name = `series-${2 + (k % 5)}`;
  const points = series.points.map((point) => ({ value: point.slice(0, 2), told: point[2] }));
  // Shapes and colours run out of step, so that thirty series differ.
  const symbol = ["rect", "triangle", "diamond", "emptyRect", "emptyTriangle", "emptyDiamond"][k % 6];
  if (points.length > 1) return line(series.name, points, name, { showSymbol: true, symbol });
  return {
    type: "scatter",
    name: series.name,
    data: points,
    symbol,
    symbolSize: 13,
    z: 4,
    itemStyle: { color: colour(name) },
  };
}

// Names below the chart; choosing one hides or shows its points. Room for as many rows as their letters need.
function legendHeight(front) {
  if (!data.series.length) return 0;
  const letters = data.series.reduce((sum, series) => sum + series.name.length * 6.5 + 38, 0);
  return 12 + 24 * Math.ceil(letters / Math.max(200, (front?.drawn.getWidth() ?? 600) - 40));
}

// The interval of a value, where there is one.
const within = (position, label) => (position.ends[label] ? ` (${position.ends[label]})` : "");

function frontTip(event) {
  const position = event.seriesIndex === 0 ? data.positions[event.dataIndex] : null;
  const values = position
    ? data.metrics.map((metric) => `${metric.title}: ${position.written[metric.label]}${within(position, metric.label)}`)
    : [data.inequality, data.quality].map(
        (label, k) => `${metricOf(label).title}: ${written(metricOf(label), event.value[k])}`,
      );
  const name = position
    ? position.name
    : event.data.told === nameOf(event)
      ? event.data.told
      : `${nameOf(event)}, ${event.data.told}`;
  return tip([name, ...values]);
}
