// Fills the page from the report (focus inspect --json) that lies in it.

const report = JSON.parse(document.getElementById("report-data").textContent);
const runs = report.runs.map((run, x) => ({ ...run, id: "run" + x }));
const several = runs.length > 1;
const HUES = [215, 350, 45, 130, 95, 170, 265, 20, 300, 240, 60];
const runColour = (x) => `var(--s${x})`;

function classColour(c, alpha = 1) {
  return `hsl(${HUES[c % HUES.length]} ${c === 0 || c === 10 ? 12 : 70}% 72% / ${alpha})`;
}
function classChip(c, names = report.classes) {
  return make("span", { class: "chip", style: `background:${classColour(c)}` }, names[c]);
}

/** Control and other unseen characters as visible marks; line breaks and blanks stay. */
function plain(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")).replace(/\n/g, "\u21b5");
}
/** A token as a chip, with blanks shown, and a note behind it. */
function tokenChip(text, note) {
  const body = plain(text).replace(/\t/g, "\u21e5");
  const pieces = body.split(/( )/).map((piece) => (piece === " " ? make("u", {}, "\u2423") : piece));
  return make("span", { class: "tok" }, make("bdi", {}, pieces), note === undefined ? null : make("small", {}, String(note)));
}

function input(label, placeholder) {
  const box = make("input", { type: "search", placeholder, size: 14 });
  make("label", {}, label, box);
  return box;
}
function header() {
  part("subtitle").textContent = `${report.model} over ${count(report.tokens)} tokens of ${report.data} ` +
    `(${count(report.windows)} windows of up to ${count(report.context)}); ` + runs.map((r) => `adapter ${r.adapter}`).join(" beside ");
  listContents();
  offerThemes();
}

function overview() {
  for (const run of runs) {
    const tile = (value, name, under) => make("div", { class: "tile" }, make("b", {}, value), make("span", {}, name), make("span", {}, under));
    const b = run.balance;
    part("overview").append(several ? make("h3", {}, run.adapter) : "", make("div", { class: "tiles" },
      tile(percent(run.pairs_kept), "of pairs kept", `window ${run.window}, ${run.sinks} sinks, ${run.groups_per_token} of ${run.groups} groups`),
      tile(percent(run.mass_kept), "of attention mass kept", `with shuffled lists ${percent(run.mass_window + run.mass_sinks + run.mass_lists_shuffled)}`),
      tile(percent(run.dominance), "largest list of any layer", `even would be ${percent(1 / run.lists_a_set)}`),
      tile(`${b.lowest.toFixed(2)}\u2013${b.highest.toFixed(2)}`, "times the mean: size of lists", `of ${count(b.lists)}, ${b.below} below 0.4, ${b.above} above 3, ${b.empty} empty`),
      tile(run.purity.toFixed(2), "purity by token class", `shuffled lists ${run.purity_shuffled.toFixed(2)}`),
      tile(run.confidence.toFixed(2), "confidence in the own list", `shuffled lists ${run.confidence_shuffled.toFixed(2)}`),
      tile(run.token_entropy.toFixed(1) + " bits", "entropy of tokens in a list", `shuffled lists ${run.token_entropy_shuffled.toFixed(1)}`)));
  }
}

function classes() {
  for (const run of runs) {
    part("classes").append(several ? make("h3", {}, run.adapter) : "", table(
      ["Class", "Of the text", "Lists", "Shuffled", "Purity", "Of the class", "Purest list"],
      run.categories.map((entry, c) => [classChip(c), percent(entry.share_of_text), entry.lists, entry.lists_shuffled,
        entry.lists ? entry.purity.toFixed(2) : "\u2013", percent(entry.share_of_class),
        entry.purest ? [`layer ${entry.purest.layer}, set ${entry.purest.set}, list ${entry.purest.list}, ${percent(entry.purest.purity, 0)}: `,
          entry.purest.top.slice(0, 5).map(([token, n]) => tokenChip(token, n))] : "\u2013"]), "Categories found"));
  }
  part("classes").append(note("Lists in which one class has at least half of the tokens; their purity (share of that class), and the share of the class that they hold."));
}

function layers() {
  const all = [...new Set(runs.flatMap((run) => [...run.layers.map((l) => l.layer), ...run.dense_layers]))].sort((a, b) => a - b);
  const of = (run, key) => all.map((number) => {
    const layer = run.layers.find((l) => l.layer === number);
    return layer ? (typeof key === "function" ? key(layer) : layer[key]) : null;
  });
  const by = (key, name, dash) => runs.map((run, x) => ({ name: several ? `${run.adapter}${name ? ", " + name : ""}` : name, values: of(run, key), color: runColour(x), dash: dash ?? x > 0 }));
  const chart = (title, text, series, show, top) => lineChart({ title, note: text, labels: all, xName: "layer", series, show, top });
  const ofFirst = several ? ` of ${runs[0].adapter}` : "";
  const shuffled = (key) => ({ name: "shuffled lists" + ofFirst, values: of(runs[0], key), color: "var(--s2)", dash: true });
  part("layers").append(make("div", { class: "charts" },
    chart("Attention mass kept", "share of full attention's mass on allowed pairs, at sampled queries", [
      ...by("mass_kept", "learned lists"),
      { name: "shuffled lists" + ofFirst, values: of(runs[0], (l) => l.mass_window + l.mass_sinks + l.mass_lists_shuffled), color: "var(--s2)", dash: true },
      { name: "window and sinks alone" + ofFirst, values: of(runs[0], (l) => l.mass_window + l.mass_sinks), color: "var(--s3)", dash: true }], (v) => percent(v, 0), 1),
    chart("Pairs kept", "share of causal pairs, all head sets", by("pairs_kept", "pairs kept"), (v) => percent(v, 0)),
    chart("Dominance", `share of tokens in the layer's largest list; even would be ${runs.map((run) => percent(1 / run.lists_a_set)).join(" and ")}`, by("dominance", "largest list"), percent),
    chart("Purity by token class", null, [...by("purity", "learned lists"), shuffled("purity_shuffled")], fixed(2), 1),
    chart("Confidence", "softmax probability of a token's own list", [...by("confidence", "learned lists"), shuffled("confidence_shuffled")], fixed(2), 1),
    chart("Entropy of tokens in a list", "bits", [...by("token_entropy", "learned lists"), shuffled("token_entropy_shuffled")], fixed(1))));
  for (const run of runs) {
    if (run.dense_layers.length) part("layers").append(note(`${run.adapter}: layers ${run.dense_layers.join(", ")} attend densely.`));
  }
  if (several && report.compared.length) {
    part("layers").append(make("div", { class: "charts" }, lineChart({ title: "Agreement of the two adapters", note: "normalised mutual information of their lists, sets of the same number",
      labels: report.compared.map((l) => l.layer), xName: "layer", series: [{ name: "agreement", values: report.compared.map((l) => l.agreement), color: "var(--s3)" }], show: fixed(2), top: 1 })));
  }
}

function reach() {
  const charts = make("div", { class: "charts" });
  charts.append(lineChart({ title: "Pairs kept by length of the text", note: "the longer the text, the smaller the window's part", labels: runs[0].lengths, xName: "tokens",
    series: runs.map((run, x) => ({ name: several ? run.adapter : "pairs kept", values: run.pairs_by_length, color: runColour(x), dash: x > 0 })), show: (v) => percent(v, 0), top: 1 }));
  runs.forEach((run, x) => {
    const d = run.distance, labels = d.begin.map((b, k) => (k < 2 ? b : `${b}+`));
    charts.append(barChart({ title: "Attention mass by distance" + (several ? `, ${run.adapter}` : ""), note: "of full attention, and its part on allowed pairs", labels, xName: "distance",
      series: [{ name: "all", values: d.mass, color: "var(--s2)" }, { name: "kept", values: d.mass_kept, color: runColour(x) }], show: (v) => percent(v, 1) }));
    charts.append(barChart({ title: "Pairs kept by distance" + (several ? `, ${run.adapter}` : ""), labels, xName: "distance",
      series: [{ name: "pairs kept", values: d.pairs_kept, color: runColour(x) }], show: (v) => percent(v, 0), top: 1 }));
  });
  part("reach").append(charts);
}

function routedLayers() {
  return [...new Set(runs.flatMap((run) => run.layers.map((l) => l.layer)))].sort((a, b) => a - b);
}

function lists() {
  const numbers = routedLayers();
  const sets = Math.max(...runs.map((run) => run.layers[0].sets.length));
  const layer = select("Layer", numbers.map((n, x) => [x, "layer " + n]), Math.floor(numbers.length / 2));
  const set = select("Head set", Array.from({ length: sets }, (_, s) => [s, "set " + s]), 0);
  const order = select("Order", [["size", "largest first"], ["purity", "purest first"], ["confidence", "surest first"], ["token_entropy", "most varied first"], ["number", "by number"]], "purity");
  const kind = select("Class", [["", "all"], ...report.classes.map((c, x) => [x, c])], "");
  const find = input("Token", "find a token");
  const body = make("div", { class: "runs" + (several ? " two" : "") });
  const first = 12;
  let all = false;
  function card(run, columns, x) {
    const mean = report.tokens / run.lists_a_set, top = columns.top[x];
    return make("li", { class: "card" },
      make("h4", {}, `List ${columns.list[x]}`, make("span", {}, `${count(columns.size[x])} tokens, ${(columns.size[x] / mean).toFixed(2)} \u00d7 mean`)),
      make("div", { class: "meter" }, make("i", { style: `width:${Math.min(100, (100 * columns.size[x]) / mean / 3).toFixed(1)}%` })),
      columns.size[x] === 0 ? note("empty") : [
        make("p", { class: "figures" }, classChip(columns.class[x]), " ", make("b", {}, percent(columns.purity[x], 0)), ` pure (shuffled ${percent(columns.purity_shuffled[x], 0)}), confidence `,
          make("b", {}, columns.confidence[x].toFixed(2)), ` (${columns.confidence_shuffled[x].toFixed(2)}), entropy `, make("b", {}, columns.token_entropy[x].toFixed(1)), ` (${columns.token_entropy_shuffled[x].toFixed(1)})`),
        make("div", {}, top.map(([token, n]) => tokenChip(token, n)))]);
  }
  function draw() {
    body.replaceChildren(...runs.map((run) => {
      const routed = run.layers.find((l) => l.layer === numbers[Number(layer.value)]), holder = routed?.sets[Number(set.value)];
      if (!holder) return make("div", {}, make("h3", {}, run.adapter), note(routed ? "This layer has fewer head sets." : "This layer attends densely."));
      const columns = holder.lists, needle = find.value.toLowerCase();
      let rows = columns.size.map((_, x) => x).filter((x) =>
        (kind.value === "" || (columns.size[x] && columns.class[x] === Number(kind.value))) && (!needle || columns.top[x].some(([token]) => token.toLowerCase().includes(needle))));
      if (order.value !== "number") rows.sort((a, b) => columns[order.value][b] - columns[order.value][a]);
      return make("div", {}, several ? make("h3", {}, run.adapter) : null,
        note(`${rows.length} of ${columns.size.length} lists; a query of this set probes ${holder.probes}. Purity ${holder.purity.toFixed(2)} (shuffled ${holder.purity_shuffled.toFixed(2)}), confidence ${holder.confidence.toFixed(2)} (${holder.confidence_shuffled.toFixed(2)}).`,
          holder.lists_left_out ? ` The ${holder.lists_left_out} smallest lists are left out, to keep the page small.` : ""),
        make("ul", { class: "cards" }, rows.slice(0, all ? rows.length : first).map((x) => card(run, columns, x))),
        rows.length > first ? make("p", {}, make("button", { type: "button", "aria-expanded": String(all), onclick: () => {
          all = !all;
          draw();
        } }, all ? `Show the first ${first}` : `Show all ${rows.length} lists`)) : null);
    }));
  }
  for (const control of [layer, set, order, kind]) control.addEventListener("change", draw);
  find.addEventListener("input", draw);
  part("lists").append(make("div", { class: "controls" }, [layer, set, order, kind, find].map((c) => c.parentNode)), body);
  draw();
}

function pairs() {
  const layer = select("Layer", [["", "all"], ...routedLayers().map((l) => [l, "layer " + l])], "");
  const kind = select("Query is", [["", "any class"], ...report.classes.map((c, x) => [x, c])], "");
  const order = select("Order", [["mass", "most mass"], ["distance", "longest distance"], ["affinity", "highest affinity"]], "mass");
  const find = input("Token", "find a token");
  const body = make("div");
  const place = ([before, token, after]) => [make("bdi", {}, plain(before)), make("mark", {}, make("bdi", {}, token.trim() ? plain(token) : plain(token).replaceAll(" ", "\u2423"))), make("bdi", {}, plain(after))];
  function draw() {
    const needle = find.value.toLowerCase();
    body.replaceChildren(...runs.flatMap((run) => {
      const chosen = run.pairs.filter((p) => (layer.value === "" || p.layer === Number(layer.value)) && (kind.value === "" || p.query_class === Number(kind.value)) &&
        (!needle || p.query[1].toLowerCase().includes(needle) || p.key[1].toLowerCase().includes(needle)));
      chosen.sort((a, b) => b[order.value] - a[order.value]);
      return [several ? make("h3", {}, run.adapter) : "", note(`${chosen.length} pairs${chosen.length > 40 ? ", the first 40 shown" : ""}`), table(
        ["Query", "attends", "Distance", "Mass", "Affinity", "Layer, head, list"],
        chosen.slice(0, 40).map((p) => [place(p.query), place(p.key), count(p.distance), percent(p.mass, 0), p.affinity.toFixed(2), `${p.layer}, ${p.head}, ${p.list}`]), "Long-range pairs")];
    }));
  }
  for (const control of [layer, kind, order]) control.addEventListener("change", draw);
  find.addEventListener("input", draw);
  part("pairs").append(note("Keys beyond the window that a query reaches through one of its lists: the strongest at sampled queries, with the share of full attention that one head gives them."),
    make("div", { class: "controls" }, [layer, kind, order, find].map((c) => c.parentNode)), body);
  draw();
}

function map() {
  const charts = make("div", { class: "charts" });
  for (const run of runs) {
    const numbers = run.layers.map((l) => l.layer), suffix = several ? `, ${run.adapter}` : "";
    const byClass = report.classes.map((_, c) => run.layers.map((l) => {
      let mine = 0, all = 0;
      for (const set of l.sets) set.lists.size.forEach((size, x) => {
        all += size;
        if (set.lists.class[x] === c) mine += size;
      });
      return all ? mine / all : 0;
    }));
    charts.append(heatMap({ title: "What lists are about" + suffix, note: "share of tokens in lists whose largest class is this one", rows: report.classes, columns: numbers, values: byClass,
      top: Math.max(...byClass.flat()), show: (v) => percent(v, 1), rowName: "class", columnName: "layer", left: 92 }));
    const matrix = run.agreement.matrix, off = matrix.flatMap((row, a) => row.filter((_, b) => a !== b));
    charts.append(heatMap({ title: "Which layers agree" + suffix, note: `normalised mutual information of their lists; shuffled lists ${run.agreement.shuffled.toFixed(3)}; the diagonal compares head sets of one layer`,
      rows: numbers, columns: numbers, values: matrix, top: Math.max(0.01, ...off), show: fixed(3), rowName: "layer", columnName: "layer", left: 30 }));
  }
  part("map").append(charts);
}

function histograms() {
  const charts = make("div", { class: "charts" });
  const bins = (values, width, most) => {
    const result = Array(most).fill(0);
    for (const v of values) ++result[Math.max(0, Math.min(most - 1, Math.floor(v / width + 1e-9)))];
    return result;
  };
  runs.forEach((run, x) => {
    const all = run.layers.flatMap((l) => l.sets.map((s) => s.lists)), suffix = several ? `, ${run.adapter}` : "";
    const column = (name) => all.flatMap((columns) => columns[name].filter((_, k) => columns.size[k] > 0));
    const mean = report.tokens / run.lists_a_set;
    const draw = (title, xName, labels, series) => charts.append(barChart({ title: title + suffix, note: "number of lists, all layers and head sets", labels, xName, series, show: (v) => String(Math.round(v)) }));
    const tenths = Array.from({ length: 20 }, (_, k) => (k * 0.05).toFixed(2));
    draw("Size of lists", "times the mean", Array.from({ length: 20 }, (_, k) => (k * 0.2).toFixed(1) + (k === 19 ? "+" : "")), [{ name: "lists", values: bins(all.flatMap((c) => c.size.map((s) => s / mean)), 0.2, 20), color: runColour(x) }]);
    for (const [key, title] of [["purity", "Purity of lists"], ["confidence", "Confidence of lists"]]) {
      draw(title, key, tenths, [{ name: "learned", values: bins(column(key), 0.05, 20), color: runColour(x) }, { name: "shuffled", values: bins(column(key + "_shuffled"), 0.05, 20), color: "var(--s2)" }]);
    }
  });
  part("histograms").append(charts);
}

function notes() {
  const lines = [
    ["Lists", "Every key lies in one list of its layer and head set; a query probes a few lists, and sees them beside the window and the sinks. The first tokens of a window (sinks) are in no list here."],
    ["Purity", "Share of a list's tokens in its largest class. Means weigh every token alike. Function words come from small lists of English words; a word piece is a part of a word of several tokens."],
    ["Confidence", "Softmax over the scores by which a key chooses its list, read at the list it chose."],
    ["Shuffled lists", "The same figures after the tokens of every window have swapped their lists at random: same sizes, no content. A figure means something by its distance from this one."],
    ["Entropy", "Of the token ids in a list, in bits: 2 to this power is an effective number of different tokens."],
    ["Mass kept", "Full attention's probabilities, computed at sampled queries from the sparse model's own queries and keys, summed over allowed pairs."],
    ["Affinity", "Cosine of the routing index's vectors of query and key (in the paper's symmetric form, of their group memberships)."],
    ["Agreement", "Normalised mutual information, 2 I(A;B) / (H(A) + H(B)), over the tokens of the text: 0 independent, 1 the same lists under other names."],
  ];
  part("notes").append(make("dl", {}, lines.flatMap(([term, text]) => [make("dt", {}, make("b", {}, term)), make("dd", { class: "soft" }, text)])),
    note(`${report.query_rows} query rows a layer and window were sampled, with seed ${report.seed}.`));
}

header();
overview();
classes();
layers();
reach();
lists();
runs.forEach((run) => part("text").append(several ? make("h3", {}, run.adapter) : "", textView(run, report.classes)));
pairs();
map();
histograms();
notes();
