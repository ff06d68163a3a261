// A scatter plot on the pieces of charts.js.

/** Round steps that cover low..high in about `parts` parts. */
function niceSteps(low, high, parts) {
  const raw = (high - low || Math.abs(high) || 1) / parts, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((s) => s * power).find((s) => s >= raw * 0.999);
  const steps = [];
  for (let x = Math.floor(low / step + 1e-9) * step; ; x += step) {
    steps.push(x);
    if (x >= high - step * 1e-9) return steps;
  }
}

const SHAPES = {
  circle: (x, y) => make("circle", { cx: x, cy: y, r: 5 }),
  square: (x, y) => make("rect", { x: x - 4.5, y: y - 4.5, width: 9, height: 9 }),
  triangle: (x, y) => make("path", { d: `M${x} ${y - 6}l5.5 10h-11z` }),
};

/**
 * Points {x, y, name, kind} over two axes; kinds [{name, color, shape, hollow, front}]: with `front` a line joins the points of
 * that kind that no other of it beats in both x and y, less being better (moreX: more of x). Arrow keys and pointer read points.
 */
function scatterChart({ title, note, points, kinds, xName, yName, showX, showY, moreX, height = 300 }) {
  const host = make("div"), readout = make("p", { class: "readout", "aria-live": "polite" });
  const ordered = [...points].sort((a, b) => a.x - b.x || a.y - b.y);
  const text = (p) => `${p.name}: ${xName} ${showX(p.x)}, ${yName} ${showY(p.y)}`;
  let at = -1, place = () => {};
  const move = (index) => {
    at = Math.max(0, Math.min(ordered.length - 1, index));
    place();
    readout.textContent = text(ordered[at]);
  };
  atWidth(host, (width) => {
    const left = 58, right = 14, over = 12, bottom = 36;
    const range = (key) => [Math.min(...points.map((p) => p[key])), Math.max(...points.map((p) => p[key]))];
    const xs = niceSteps(...range("x"), width < 500 ? 4 : 8), ys = niceSteps(...range("y"), 5);
    const scale = (steps, from, to) => (value) => from + ((to - from) * (value - steps[0])) / (steps.at(-1) - steps[0] || 1);
    const px = scale(xs, left, width - right), py = scale(ys, height - bottom, over);
    const svg = make("svg", { width, height, tabindex: 0, role: "img",
      "aria-label": `${title}: ${points.length} points. Use the left and right arrow keys to read them.` });
    for (const y of ys) svg.append(make("line", { x1: left, x2: width - right, y1: py(y), y2: py(y), stroke: "var(--line)" }),
      make("text", { x: left - 6, y: py(y) + 4, "text-anchor": "end" }, showY(y)));
    for (const x of xs) svg.append(make("line", { x1: px(x), x2: px(x), y1: over, y2: height - bottom, stroke: "var(--line)" }),
      make("text", { x: px(x), y: height - bottom + 15, "text-anchor": "middle" }, showX(x)));
    svg.append(make("text", { x: width - right, y: height - 4, "text-anchor": "end" }, xName),
      make("text", { x: 4, y: over - 1 }, yName));
    for (const kind of kinds.filter((k) => k.front)) {
      let best = Infinity;
      const mine = ordered.filter((p) => p.kind === kind.name);
      const front = (moreX ? mine.reverse() : mine).filter((p) => p.y < best && ((best = p.y), true));
      if (front.length > 1) svg.append(make("path", { d: "M" + front.map((p) => `${px(p.x).toFixed(1)} ${py(p.y).toFixed(1)}`).join("L"), fill: "none",
        stroke: kind.color, "stroke-width": 1.6, "stroke-dasharray": "5 4", opacity: 0.8 }));
    }
    for (const p of ordered) {
      const kind = kinds.find((k) => k.name === p.kind), mark = SHAPES[kind.shape ?? "circle"](px(p.x), py(p.y));
      mark.setAttribute("fill", kind.hollow ? "var(--card)" : kind.color);
      mark.setAttribute("stroke", kind.color);
      mark.setAttribute("stroke-width", "1.8");
      mark.append(make("title", {}, text(p)));
      svg.append(mark);
    }
    const ring = make("circle", { r: 10, fill: "none", stroke: "var(--ink)", "stroke-width": 1.6, visibility: "hidden" });
    svg.append(ring);
    place = () => {
      if (at < 0) return;
      ring.setAttribute("cx", px(ordered[at].x));
      ring.setAttribute("cy", py(ordered[at].y));
      ring.setAttribute("visibility", "visible");
    };
    place();
    const byPointer = (event) => {
      const area = svg.getBoundingClientRect(), x = event.clientX - area.left, y = event.clientY - area.top;
      const away = ordered.map((p) => Math.hypot(px(p.x) - x, py(p.y) - y));
      move(away.indexOf(Math.min(...away)));
    };
    svg.addEventListener("pointermove", byPointer);
    svg.addEventListener("pointerdown", byPointer);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e6, End: 1e6 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      move(at + step);
    });
    host.replaceChildren(svg);
  });
  return make("figure", {}, make("figcaption", {}, title, note ? make("small", {}, note) : null),
    make("ul", { class: "legend" }, kinds.filter((k) => points.some((p) => p.kind === k.name)).map((k) => make("li", {},
      make("i", { class: "block", style: `width:12px;border:2px solid ${k.color};background:${k.hollow ? "transparent" : k.color};border-radius:${k.shape === "square" ? 2 : 6}px` }), k.name))),
    host, readout, valueTable(["", xName, yName], ordered.map((p) => [p.name, showX(p.x), showY(p.y)])));
}
