// Every chart: an ECharts instance as SVG that is drawn again when the slider, the colours or the width change.
function chart(id, options) {
  const holder = byId(id);
  if (!holder) return null;
  const drawn = echarts.init(holder, null, { renderer: "svg" });
  const draw = () => drawn.setOption(withKeys({ ...shared(), ...options() }), { notMerge: true });
  theme.repaint.push(draw);
  new ResizeObserver(() => {
    drawn.resize();
    draw();
  }).observe(holder);
  return { drawn, draw, describe: (text) => holder.setAttribute("aria-label", text) };
}

function shared() {
  return {
    animation: false,
    textStyle: { fontFamily: "system-ui, sans-serif", color: colour("ink") },
    grid: { left: 12, right: 18, top: 28, bottom: 12, containLabel: true },
    tooltip: {
      trigger: "item",
      confine: true,
      backgroundColor: colour("card"),
      borderColor: colour("line"),
      textStyle: { color: colour("ink") },
    },
  };
}

function axis(name, more = {}) {
  return {
    type: "value",
    name,
    nameLocation: "middle",
    nameGap: 28,
    nameTextStyle: { color: colour("soft"), fontSize: 12 },
    axisLabel: { color: colour("soft"), fontSize: 12, hideOverlap: true },
    axisLine: { show: true, lineStyle: { color: colour("then") } },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: colour("grid") } },
    ...more,
  };
}

// Axis names stand above a y axis: turned text is hard to read on a phone.
const yAxis = (name, more = {}) =>
  axis(name, {
    nameLocation: "end",
    nameGap: 10,
    nameTextStyle: { align: "left", color: colour("soft"), fontSize: 12 },
    ...more,
  });

// Tooltips are elements, not HTML text: whatever a name holds stays text.
function tip(lines) {
  const box = element("div", "", "tip");
  lines.forEach((line, k) => box.append(element(k ? "div" : "strong", line)));
  return box;
}

// How far labels at the ends of lines must move so that no two overlap: `heights` from the top, in pixels.
function spreadApart(heights, room = 15) {
  const order = heights.map((_, k) => k).sort((a, b) => heights[a] - heights[b]);
  const places = [...heights];
  order.forEach((k, at) => {
    if (at) places[k] = Math.max(places[k], places[order[at - 1]] + room);
  });
  [...order].reverse().forEach((k, at) => {
    const below = at ? places[order[order.length - at]] - room : Math.max(...heights);
    places[k] = Math.min(places[k], Math.max(below, 0));
  });
  return places.map((place, k) => place - heights[k]);
}

function line(name, points, colourName, more = {}) {
  const { label, shift = 0, ...rest } = more;
  return {
    type: "line",
    name,
    data: points,
    showSymbol: false,
    symbolSize: 6,
    lineStyle: { width: 2.5, color: colour(colourName) },
    itemStyle: { color: colour(colourName) },
    endLabel: label
      ? { show: true, formatter: label, color: colour(colourName), fontSize: 12, fontWeight: 600, offset: [0, shift] }
      : undefined,
    ...rest,
  };
}

// The charts keep what they know of a series as a property with its name: no name from outside may be that of one there
// is, such as __proto__. A space of no width in front is not seen, and makes it another.
const keyed = (name) => `\u200b${name}`;
const nameOf = (event) => event.seriesName.slice(1);

function withKeys(option) {
  const entries = option.legend?.data.map((entry) =>
    typeof entry === "string" ? keyed(entry) : { ...entry, name: keyed(entry.name) },
  );
  return {
    ...option,
    ...(entries ? { legend: { ...option.legend, data: entries } } : {}),
    series: option.series.map((series) => ({ ...series, name: keyed(series.name) })),
  };
}
