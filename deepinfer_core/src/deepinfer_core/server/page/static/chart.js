// How is the past of one or two figures drawn?

import { make } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 80;

/** Points that are kept: two minutes of readings. */
export const POINTS = 120;

/** A figure with a title, its newest values and their past. */
export class Chart {
  constructor({ title, series, format, top = null }) {
    this.title = title;
    this.series = series;
    this.format = format;
    this.fixedTop = top;
    this.past = series.map(() => []);
    this.value = make("p", { className: "value", textContent: "–" });
    this.top = make("span", { className: "top" });
    this.svg = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    for (const share of [0, 0.5, 1]) {
      const y = HEIGHT * share;
      this.svg.append(svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
    }
    this.area = svg("path", { class: "area" });
    this.traces = series.map((_, place) => svg("path", { class: place ? "trace b" : "trace a" }));
    this.svg.append(this.area, ...this.traces);
    const names = series.map((name, place) =>
      make("span", { className: place ? "b" : "a", textContent: name }),
    );
    this.element = make(
      "figure", {}, make("figcaption", { textContent: title }), this.value, this.svg,
      make("p", { className: "legend" }, ...names, this.top),
    );
    this.draw();
  }

  /** Appends one value a series; null: nothing is known. */
  add(values) {
    values.forEach((value, place) => {
      this.past[place].push(value);
      if (this.past[place].length > POINTS) this.past[place].shift();
    });
    this.draw();
  }

  draw() {
    const known = this.past.flat().filter((value) => value !== null);
    const top = this.fixedTop ?? roundUp(Math.max(0, ...known));
    this.past.forEach((past, place) => this.traces[place].setAttribute("d", path(past, top)));
    this.area.setAttribute("d", area(this.past[0], top));
    const newest = this.past.map((past) => past.at(-1) ?? null);
    const shown = newest.map((value) => (value === null ? "–" : this.format(value)));
    this.value.replaceChildren(shown[0]);
    if (shown.length > 1) this.value.append(make("small", { textContent: ` ${this.series[1]} ${shown[1]}` }));
    this.top.textContent = `up to ${this.format(top)}`;
    const said = this.series.map((name, place) => `${name} ${shown[place]}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}: ${said}`);
  }
}

function svg(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function points(past, top) {
  const first = POINTS - past.length;
  return past.map((value, place) =>
    value === null
      ? null
      : [((first + place) / (POINTS - 1)) * WIDTH, HEIGHT * (1 - Math.min(value / top, 1))],
  );
}

/** Lines through neighbouring points; where nothing is known there is a gap. */
function path(past, top) {
  let isDown = false;
  const parts = [];
  for (const point of points(past, top)) {
    if (point) parts.push(`${isDown ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`);
    // A point between gaps is a dot: a line of no length with a round end.
    if (point && !isDown) parts.push("h0");
    isDown = point !== null;
  }
  return parts.join("");
}

function area(past, top) {
  const known = points(past.map((value) => value ?? 0), top);
  if (!known.length) return "";
  const line = known.map(([x, y]) => `L${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  return `M${known[0][0].toFixed(1)} ${HEIGHT}${line}V${HEIGHT}Z`;
}

/** The next round number, so that a little more does not change the scale. */
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}
