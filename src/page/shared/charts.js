"use strict";
// Plain SVG charts that draw themselves at the width they have, and tell their values to pointer, keyboard and readers.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children (texts as text); on* attributes are listeners. */
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "rect", "circle", "text", "title"].includes(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const percent = (value, digits = 1) => (value === null ? "none" : (100 * value).toFixed(digits) + "%");
const fixed = (digits) => (value) => (value === null ? "none" : value.toFixed(digits));

/** Calls draw(width) now and whenever the host's width changes. */
function atWidth(host, draw) {
  let last = 0;
  new ResizeObserver(() => {
    const width = Math.floor(host.clientWidth);
    if (width > 0 && width !== last) draw((last = width));
  }).observe(host);
}

function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10].map((step) => step * power).find((top) => top >= value * 0.999);
}

function valueTable(head, rows) {
  return make("details", {}, make("summary", {}, "Values as a table"),
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of values" },
      make("table", {}, make("thead", {}, make("tr", {}, head.map((h, x) => make("th", { scope: "col", class: x ? "n" : null }, h)))),
        make("tbody", {}, rows.map((row) => make("tr", {}, row.map((cell, x) => make("td", { class: x ? "n" : null }, String(cell)))))))));
}

/** What line and bar charts share: frame, axis, cursor by pointer and arrow keys, readout, table. */
function frame({ title, note, labels, xName, series, show, top, height = 210 }, drawSeries) {
  const host = make("div");
  const readout = make("p", { class: "readout", "aria-live": "polite" });
  const say = (x) => {
    readout.textContent = xName + " " + labels[x] + ": " +
      series.map((s) => (series.length > 1 ? s.name + " " : "") + show(s.values[x] ?? null)).join(", ");
  };
  let cursor = -1;
  let place = () => {};
  const move = (x) => {
    cursor = Math.max(0, Math.min(labels.length - 1, x));
    place();
    say(cursor);
  };
  atWidth(host, (width) => {
    const left = 46, right = 10, bottom = 34, over = 10;
    const high = top ?? niceTop(Math.max(1e-9, ...series.flatMap((s) => s.values.filter((v) => v !== null))));
    const band = (width - left - right) / labels.length;
    const px = (x) => left + band * (x + 0.5);
    const py = (value) => over + (height - over - bottom) * (1 - value / high);
    const svg = make("svg", { height, width, tabindex: 0, role: "img",
      "aria-label": title + ". Use the left and right arrow keys to read values." });
    for (let step = 0; step <= 4; ++step) {
      const y = py((high * step) / 4);
      svg.append(make("line", { x1: left, x2: width - right, y1: y, y2: y, stroke: "var(--line)" }),
        make("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, show((high * step) / 4)));
    }
    const every = Math.max(1, Math.ceil((7 * Math.max(...labels.map((l) => String(l).length)) + 8) / band));
    labels.forEach((label, x) => {
      if (x % every === 0) svg.append(make("text", { x: px(x), y: height - bottom + 16, "text-anchor": "middle" }, String(label)));
    });
    svg.append(make("text", { x: width - right, y: height - 3, "text-anchor": "end" }, xName));
    drawSeries(svg, { px, py, band });
    const rule = make("line", { y1: over, y2: height - bottom, stroke: "var(--ink)", "stroke-dasharray": "3 3", visibility: "hidden" });
    svg.append(rule);
    place = () => {
      if (cursor < 0) return;
      rule.setAttribute("x1", px(cursor));
      rule.setAttribute("x2", px(cursor));
      rule.setAttribute("visibility", "visible");
    };
    place();
    svg.addEventListener("pointermove", (event) => move(Math.floor((event.clientX - svg.getBoundingClientRect().left - left) / band)));
    svg.addEventListener("pointerdown", (event) => move(Math.floor((event.clientX - svg.getBoundingClientRect().left - left) / band)));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e6, End: 1e6 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      move(cursor + step);
    });
    host.replaceChildren(svg);
  });
  return make("figure", {}, make("figcaption", {}, title, note ? make("small", {}, note) : null),
    series.length > 1 ? make("ul", { class: "legend" }, series.map((s) => make("li", {},
      make("i", { style: `border-color:${s.color};border-top-style:${s.dash ? "dashed" : "solid"}` }), s.name))) : null,
    host, readout,
    valueTable([xName, ...series.map((s) => s.name)], labels.map((label, x) => [label, ...series.map((s) => show(s.values[x] ?? null))])));
}

/** Lines over labels; series [{name, values (null for a gap), color, dash}]. */
function lineChart(options) {
  return frame(options, (svg, { px, py }) => {
    for (const s of options.series) {
      let path = "", pen = "M";
      s.values.forEach((value, x) => {
        if (value === null) return void (pen = "M");
        path += pen + px(x).toFixed(1) + " " + py(value).toFixed(1);
        pen = "L";
      });
      svg.append(make("path", { d: path, fill: "none", stroke: s.color, "stroke-width": 2.2, "stroke-dasharray": s.dash ? "5 4" : null,
        "stroke-linejoin": "round" }));
      if (s.values.length <= 40) {
        s.values.forEach((value, x) => value !== null && svg.append(make("circle", { cx: px(x), cy: py(value), r: 2.4, fill: s.color })));
      }
    }
  });
}

/** Bars side by side over labels. */
function barChart(options) {
  return frame(options, (svg, { px, py, band }) => {
    const n = options.series.length, wide = Math.max(1, (band * 0.8) / n);
    options.series.forEach((s, k) => s.values.forEach((value, x) => {
      if (value) svg.append(make("rect", { x: px(x) + (k - n / 2) * wide, y: py(value), width: Math.max(1, wide - 1), height: Math.max(0, py(0) - py(value)), fill: s.color, rx: 1.5 }));
    }));
  });
}

/** A matrix of shades: rows and columns with names; values 0 .. top; arrow keys move a cell cursor. */
function heatMap({ title, note, rows, columns, values, top, show, rowName, columnName, left = 40 }) {
  const host = make("div");
  const readout = make("p", { class: "readout", "aria-live": "polite" });
  let at = null, place = () => {};
  const move = (r, c) => {
    at = [Math.max(0, Math.min(rows.length - 1, r)), Math.max(0, Math.min(columns.length - 1, c))];
    place();
    readout.textContent = `${rowName} ${rows[at[0]]}, ${columnName} ${columns[at[1]]}: ${show(values[at[0]][at[1]])}`;
  };
  atWidth(host, (width) => {
    const cell = (width - left - 4) / columns.length;
    const tall = Math.min(26, Math.max(cell, rows.length > 16 ? cell : 20));
    const height = tall * rows.length + 34;
    const svg = make("svg", { width, height, tabindex: 0, role: "img", "aria-label": title + ". Use the arrow keys to read cells." });
    rows.forEach((row, r) => {
      if (r % Math.max(1, Math.ceil(13 / tall)) === 0) svg.append(make("text", { x: left - 5, y: (r + 0.5) * tall + 4, "text-anchor": "end" }, String(row)));
      columns.forEach((column, c) => {
        svg.append(make("rect", { x: left + c * cell, y: r * tall, width: Math.max(0.5, cell - 0.6), height: Math.max(0.5, tall - 0.6),
          style: `fill:rgba(var(--heat), ${Math.min(1, 0.05 + (0.95 * values[r][c]) / (top || 1)).toFixed(3)})` }));
      });
    });
    const every = Math.max(1, Math.ceil((7 * Math.max(...columns.map((c) => String(c).length)) + 6) / cell));
    columns.forEach((column, c) => {
      if (c % every === 0) svg.append(make("text", { x: left + (c + 0.5) * cell, y: tall * rows.length + 14, "text-anchor": "middle" }, String(column)));
    });
    svg.append(make("text", { x: width - 4, y: height - 4, "text-anchor": "end" }, columnName));
    const box = make("rect", { width: cell, height: tall, fill: "none", stroke: "var(--ink)", "stroke-width": 1.6, visibility: "hidden" });
    svg.append(box);
    place = () => {
      if (!at) return;
      box.setAttribute("x", left + at[1] * cell);
      box.setAttribute("y", at[0] * tall);
      box.setAttribute("visibility", "visible");
    };
    place();
    const byPointer = (event) => {
      const area = svg.getBoundingClientRect();
      move(Math.floor((event.clientY - area.top) / tall), Math.floor((event.clientX - area.left - left) / cell));
    };
    svg.addEventListener("pointermove", byPointer);
    svg.addEventListener("pointerdown", byPointer);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!step) return;
      event.preventDefault();
      at ? move(at[0] + step[0], at[1] + step[1]) : move(0, 0);
    });
    host.replaceChildren(svg);
  });
  return make("figure", {}, make("figcaption", {}, title, note ? make("small", {}, note) : null), host, readout);
}
