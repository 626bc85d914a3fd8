// Draws the charts of a page with uPlot. The points come from the API, whole, each time the cluster was sampled.

import { printable } from "./text.js";

const HEIGHT = 176;

export function startCharts() {
  const holder = document.querySelector("[data-charts]");
  if (!holder) return;
  const drawn = new Map();
  let isBusy = false;

  async function refresh() {
    if (isBusy) return;
    isBusy = true;
    try {
      const answer = await fetch(holder.dataset.charts);
      if (!answer.ok) return;
      for (const chart of (await answer.json()).charts) {
        const figure = holder.querySelector(`[data-chart="${chart.id}"]`);
        if (figure) draw(figure, chart, drawn);
      }
    } catch {
      // The page says that it has lost its server; the next tick tries again.
    } finally {
      isBusy = false;
    }
  }

  function redraw() {
    for (const { plot } of drawn.values()) plot.destroy();
    drawn.clear();
    for (const box of holder.querySelectorAll(".plot")) box.replaceChildren();
    refresh();
  }

  document.addEventListener("headrace:tick", refresh);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => {
    for (const { plot, box } of drawn.values()) plot.setSize({ width: box.clientWidth, height: HEIGHT });
  }).observe(holder);
  refresh();
}

function draw(figure, chart, drawn) {
  const box = figure.querySelector(".plot");
  const data = [chart.times, ...chart.series.map((series) => series.values)];
  const names = chart.series.map((series) => series.name).join("\n");
  const last = chart.series.map((series) => `${series.name} ${short(series.values.at(-1))}`).join(", ");
  figure.setAttribute("aria-label", `${chart.title} in ${chart.unit}; now: ${last || "nothing yet"}`);
  const caption = figure.querySelector("figcaption");
  caption.replaceChildren(chart.title, Object.assign(document.createElement("span"), { textContent: chart.unit }));
  const known = drawn.get(chart.id);
  if (known && known.names === names) {
    known.plot.setData(data);
    return;
  }
  known?.plot.destroy();
  box.replaceChildren();
  const plot = new uPlot(options(box, chart), data, box);
  drawn.set(chart.id, { plot, box, names });
}

function options(box, chart) {
  const colors = getComputedStyle(document.documentElement);
  const color = (name) => colors.getPropertyValue(name).trim();
  const axis = {
    stroke: color("--faint"),
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
    font: `11px ${color("--sans")}`,
  };
  return {
    width: box.clientWidth,
    height: HEIGHT,
    padding: [8, 24, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { live: true },
    hooks: { setLegend: [(plot) => showTime(box, chart.unit, plot)] },
    scales: { y: { range: (_, low, high) => [0, Math.max(1, high ?? 1) * 1.08] } },
    axes: [
      { ...axis, size: 28, space: 70, values: (_, ticks) => ticks.map(clock) },
      { ...axis, size: 46, space: 28, values: (_, ticks) => ticks.map(short) },
    ],
    series: [
      { value: (_, time) => (time == null ? "now" : clock(time)) },
      ...chart.series.map((series, index) => ({
        label: printable(series.name),
        stroke: color(`--series-${(index % 6) + 1}`),
        fill: chart.series.length === 1 ? `color-mix(in srgb, ${color("--series-1")} 12%, transparent)` : undefined,
        width: 1.75,
        spanGaps: false,
        points: { show: false },
        value: (plot, value, at) => short(value ?? plot.data[at].at(-1)),
      })),
    ],
  };
}

function showTime(box, unit, plot) {
  const at = plot.cursor.idx;
  const time = plot.cursor.left >= 0 && at != null ? ` at ${clock(plot.data[0][at])} UTC` : "";
  box.parentElement.querySelector("figcaption span").textContent = unit + time;
}

function clock(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 19); // UTC, as all times on the pages
}

function short(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
  return String(size >= 100 ? Math.round(value) : +value.toFixed(1));
}
