// The text view: a token shows its list, the lists it probes and the keys it attends; far ones are joined by arcs.

function bytesOf(base64) {
  const text = atob(base64);
  return Uint8Array.from(text, (c) => c.charCodeAt(0));
}

/** Reads one layer's packed arrays (excerpt.cpp): functions of (set, token). */
function unpackLayer(layer, tokens, lists, keysAToken) {
  const group = new DataView(bytesOf(layer.group).buffer), probes = bytesOf(layer.probes);
  const keys = new DataView(bytesOf(layer.keys).buffer), mass = bytesOf(layer.mass);
  const width = Math.ceil(lists / 8);
  return {
    list: (set, t) => group.getUint16(2 * (set * tokens + t), true),
    probes: (set, t, list) => list > 0 && (probes[(set * tokens + t) * width + ((list - 1) >> 3)] >> ((list - 1) & 7) & 1) === 1,
    keys: (set, t) => {
      const found = [];
      for (let x = 0; x < keysAToken; ++x) {
        const at = (set * tokens + t) * keysAToken + x, key = keys.getUint16(2 * at, true);
        if (key !== 0xffff) found.push([key, mass[at] / 255]);
      }
      return found;
    },
  };
}

const hue = (list) => (list * 137.508) % 360;
const listColour = (list) => (list === 0 ? "var(--fill)" : `hsl(${hue(list).toFixed(0)} 60% var(--list-l))`);

/** The view of one run's excerpt with its controls. */
function textView(run, classNames) {
  const data = run.excerpt, n = data.tokens.length;
  if (!n || !data.layers.length) return make("p", { class: "soft" }, "No text was kept for this view.");
  const nameOf = (list) => (list === 0 ? (run.global_group ? "global" : "sinks") : run.layers[0].sets[0].lists.list[list - (run.global_group ? 0 : 1)] ?? String(list));
  const unpacked = new Map();
  // To begin with, where lists carry most.
  const carried = (l) => run.layers.find((layer) => layer.layer === l.layer);
  const most = (values) => values.indexOf(Math.max(...values));
  const start = most(data.layers.map((l) => carried(l).mass_lists));
  const layerChoice = select("Layer", data.layers.map((l, x) => [x, "layer " + l.layer]), start);
  const setChoice = select("Head set", Array.from({ length: data.layers[0].sets }, (_, s) => [s, "set " + s]), most(carried(data.layers[start]).sets.map((s) => s.probes)));
  const colourChoice = select("Background", [["list", "by list"], ["class", "by class"], ["none", "none"]], "none");
  const words = make("div", { class: "words", role: "listbox", tabindex: 0, "aria-label": "Tokens of the text. Arrow keys move from token to token." });
  const overlay = make("svg", { "aria-hidden": "true" });
  const panel = make("div", { class: "panel", "aria-live": "polite" }, make("p", { class: "soft" }, "Point at a token, tap it, or move with the arrow keys."));
  const spans = data.tokens.map((token, t) => {
    const span = make("span", { role: "option", id: `${run.id}-token-${t}`, "aria-selected": "false", "data-t": t }, plain(token) || "\u200b");
    words.append(span);
    if (token.includes("\n")) words.append(document.createTextNode("\n"));
    return span;
  });
  words.append(overlay);
  let chosen = -1;

  const layerAt = () => Number(layerChoice.value), setAt = () => Number(setChoice.value);
  const layerData = (x) => {
    if (!unpacked.has(x)) unpacked.set(x, unpackLayer(data.layers[x], n, run.lists_a_set, data.keys_a_token));
    return unpacked.get(x);
  };

  function paint() {
    const layer = layerData(layerAt()), set = setAt(), colour = colourChoice.value;
    spans.forEach((span, t) => {
      span.style.borderBottomColor = colour === "list" ? listColour(layer.list(set, t)) : colour === "class" ? classColour(data.classes[t]) : "";
      span.style.backgroundColor = colour === "list" ? listColour(layer.list(set, t)) : colour === "class" ? classColour(data.classes[t], 0.45) : "";
    });
    if (chosen >= 0) show(chosen);
  }

  function show(t) {
    const layer = layerData(layerAt()), set = setAt();
    if (chosen >= 0) spans[chosen].setAttribute("aria-selected", "false");
    chosen = t;
    words.setAttribute("aria-activedescendant", spans[t].id);
    spans[t].setAttribute("aria-selected", "true");
    const keys = layer.keys(set, t);
    const strong = new Map(keys);
    let kept = 0, far = 0;
    spans.forEach((span, j) => {
      const near = j <= t && t - j <= run.window;
      const listed = j < t && !near && (layer.list(set, j) === 0 || layer.probes(set, t, layer.list(set, j)));
      kept += near || listed;
      far += listed;
      span.classList.toggle("reach", listed);
      span.classList.toggle("hit", strong.has(j) && j !== t);
      span.style.setProperty("--mass", strong.has(j) ? (0.12 + 0.8 * Math.sqrt(strong.get(j))).toFixed(2) : "0");
      if (colourChoice.value !== "none" && strong.has(j)) span.style.backgroundColor = "";
    });
    drawArcs(t, keys);
    describe(t, keys, kept, far);
  }

  function centre(t) {
    const box = spans[t].getClientRects()[0] ?? spans[t].getBoundingClientRect(), area = words.getBoundingClientRect();
    return [box.left + box.width / 2 - area.left + words.scrollLeft - words.clientLeft, box.top - area.top + words.scrollTop - words.clientTop];
  }

  function drawArcs(t, keys) {
    overlay.setAttribute("width", 1);
    overlay.setAttribute("height", 1);
    const layer = layerData(layerAt()), set = setAt();
    overlay.replaceChildren(...keys.filter(([key]) => t - key > run.window).map(([key, mass]) => {
      const [x1, y1] = centre(t), [x2, y2] = centre(key);
      const lift = Math.min(60, 18 + Math.abs(x1 - x2) / 5), aside = Math.min(110, Math.abs(y1 - y2) / 4);
      const up = (y) => Math.max(-30, y - lift).toFixed(1);  // no higher than the margin above the text
      return make("path", { d: `M${x1} ${y1}C${x1 + aside} ${up(y1)} ${x2 + aside} ${up(y2)} ${x2} ${y2 + 3}`,
        class: layer.list(set, key) === 0 ? "sink" : null, "stroke-width": (1.2 + 4 * mass).toFixed(1) });
    }));
  }

  function describe(t, keys, kept, far) {
    const layer = layerData(layerAt()), set = setAt(), probed = [];
    for (let list = 1; list <= run.lists_a_set; ++list) if (layer.probes(set, t, list)) probed.push(list);
    panel.replaceChildren(
      make("p", {}, tokenChip(data.tokens[t]), " ", classChip(data.classes[t], classNames), ` token ${t}`),
      make("p", {}, make("b", {}, `list ${nameOf(layer.list(set, t))}`), `, layer ${data.layers[layerAt()].layer}, set ${set}; probes `,
        probed.length ? `${probed.map(nameOf).join(", ")}` : "none"),
      make("p", {}, `may attend ${kept} of ${t + 1} tokens, ${far} of them beyond the window of ${run.window} (dotted)`),
      make("p", {}, "attends most to"),
      make("p", {}, keys.map(([key, mass]) => [tokenChip(data.tokens[key], `${Math.round(100 * mass)}%, ${t - key} back`), " "])),
      make("p", { class: "soft" }, `Its list through the layers (set ${set})`),
      make("div", { class: "strip" }, data.layers.map((l, x) => make("span", { style: `background:${listColour(layerData(x).list(set, t))}` },
        `${l.layer}: ${nameOf(layerData(x).list(set, t))}`))));
  }

  words.addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse" && event.target.dataset.t !== undefined) show(Number(event.target.dataset.t));
  });
  words.addEventListener("click", (event) => {
    if (event.target.dataset.t !== undefined) show(Number(event.target.dataset.t));
  });
  words.addEventListener("keydown", (event) => {
    const sideways = { ArrowLeft: -1, ArrowRight: 1, Home: -n, End: n }[event.key];
    const vertical = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (sideways === undefined && vertical === undefined) return;
    event.preventDefault();
    let to = Math.max(0, chosen);
    if (chosen >= 0 && sideways !== undefined) to = Math.max(0, Math.min(n - 1, chosen + sideways));
    if (chosen >= 0 && vertical !== undefined) {
      const [x, y] = centre(chosen);
      let best = Infinity;
      spans.forEach((_, t) => {
        const [a, b] = centre(t), rows = (b - y) * vertical;
        const cost = rows * 4 + Math.abs(a - x);
        if (rows > 8 && cost < best) [best, to] = [cost, t];
      });
    }
    show(to);
    spans[to].scrollIntoView({ block: "nearest" });
  });
  words.addEventListener("focus", () => chosen < 0 && show(Math.min(n - 1, run.window + 40)));
  for (const choice of [layerChoice, setChoice, colourChoice]) choice.addEventListener("change", paint);
  atWidth(words, () => chosen >= 0 && show(chosen));
  paint();
  return make("div", {}, make("div", { class: "controls" }, layerChoice.parentNode, setChoice.parentNode, colourChoice.parentNode),
    data.every > 1 ? make("p", { class: "soft" }, `One layer in ${data.every} is shown, to keep the page small.`) : null,
    make("div", { class: "reading" }, words, panel));
}
