// Fills the page from results.json, which lies in it.

const report = JSON.parse(document.getElementById("report-data").textContent);

const figure = (value, column) => (value === null || value === undefined ? "" : column.percent ? percent(value, column.digits) : value.toFixed(column.digits));
function cellText(cell, column) {
  if (!cell) return [];
  const error = cell.stderr ? figure(cell.stderr, column).replace("%", "") : "";
  return [figure(cell.value, column), error ? make("small", {}, " \u00b1 " + error) : null];
}

function remarks(row) {
  return [row.leaks ? "leaks: not ranked" : "", row.unranked ? row.unranked + ": not ranked" : "", row.note, row.missing].filter(Boolean).join("; ");
}

function figureTable(t) {
  const columns = t.columns.map((column) => ({ ...column, inPaper: t.rows.some((row) => column.key in row.paper), inOurs: t.rows.some((row) => column.key in row.ours) }))
    .filter((column) => column.inPaper || column.inOurs);
  const head = [make("th", { scope: "col" }, "")];
  for (const column of columns) {
    if (column.inPaper) head.push(make("th", { scope: "col", class: "n" }, column.title, make("br"), "paper"));
    if (column.inOurs) head.push(make("th", { scope: "col", class: "n" }, column.title, make("br"), "ours"));
  }
  head.push(make("th", { scope: "col" }, ""));
  const body = [];
  let group = "";
  for (const row of t.rows) {
    if (row.group !== group) body.push(make("tr", { class: "group" }, make("td", { colspan: head.length }, (group = row.group))));
    const cells = [make("td", {}, row.title)];
    for (const column of columns) {
      if (column.inPaper) cells.push(make("td", { class: "n paper" }, figure(row.paper[column.key], column)));
      if (column.inOurs) cells.push(make("td", { class: "n" + (column.best === row.id ? " best" : "") }, cellText(row.ours[column.key], column)));
    }
    cells.push(make("td", {}, make("small", {}, remarks(row))));
    body.push(make("tr", {}, cells));
  }
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t.title },
    make("table", { class: "figures" }, make("thead", {}, make("tr", {}, head)), make("tbody", {}, body)));
}

const chip = (verdict) => make("span", { class: "verdict " + verdict.replace(" ", "-") }, verdict);

function claims(t) {
  if (!t.claims.length) return null;
  return make("ul", { class: "claims" }, t.claims.map((claim) => make("li", {}, chip(claim.verdict), " ", claim.text,
    make("p", { class: "soft" }, claim.paper ? `Paper: ${claim.paper}. ` : "", claim.figures ? `Ours: ${claim.figures}. ` : "", claim.reason ? claim.reason + "." : ""))));
}

const KINDS = [
  { name: "ours", color: "var(--s0)", front: true },
  { name: "ours, not ranked", color: "var(--s2)", hollow: true },
  { name: "the paper's figures", color: "var(--s1)", shape: "square", hollow: true },
];

function plots(t) {
  const column = (key) => t.columns.find((c) => c.key === key);
  const charts = t.plots.map(({ title, x, y }) => {
    const points = [];
    for (const row of t.rows) {
      const kind = row.leaks || row.unranked ? KINDS[1].name : KINDS[0].name;
      if (row.ours[x] && row.ours[y]) points.push({ x: row.ours[x].value, y: row.ours[y].value, name: row.title, kind });
      if (x in row.paper && y in row.paper) points.push({ x: row.paper[x], y: row.paper[y], name: row.title + " (paper)", kind: KINDS[2].name });
    }
    return points.length < 2 ? null : scatterChart({ title, note: "the dashed line joins what nothing ranked beats in both", points, kinds: KINDS, xName: column(x).title, yName: column(y).title,
      showX: (v) => figure(v, column(x)), showY: (v) => figure(v, column(y)), moreX: column(x).better === "high" });
  }).filter(Boolean);
  return charts.length ? make("div", { class: "charts" }, charts) : null;
}

function header() {
  part("subtitle").textContent = `Scale ${report.scale}, ${report.repetitions} ${report.repetitions === 1 ? "repetition" : "repetitions"}, ${report.date}, ${report.machine}, focus ${report.program}` +
    Object.entries(report.given).map(([name, value]) => `, ${name} = ${value}`).join("");
  const all = report.tables.flatMap((t) => t.claims.map((c) => c.verdict));
  const tiles = ["held", "not held", "unclear", "not measured"].map((verdict) => make("div", { class: "tile" },
    make("b", {}, String(all.filter((v) => v === verdict).length)), make("span", {}, chip(verdict))));
  if (all.length) part("main").append(make("section", { id: "claims" }, make("h2", {}, "Claims"), make("div", { class: "tiles" }, tiles)));
}

header();
for (const t of report.tables) {
  part("main").append(make("section", { id: t.name }, make("h2", {}, `${t.name}: ${t.title}`), note(`The paper's ${t.source}. ${t.about}`),
    figureTable(t), claims(t) ?? "", plots(t) ?? ""));
}
part("main").append(make("section", { id: "notes" }, make("h2", {}, "How it is measured"),
  note("Figures stand with one standard error over repetitions, windows or items, where it is known. A claim is held or not held when its difference is beyond two standard errors (beyond more where fewer than some thirty values tell them), else unclear. Bold: the best of ours among the rows that are ranked; rows that leak are not."),
  make("details", {}, make("summary", {}, `The ${report.runs.length} commands`), make("ul", {}, report.runs.map((run) => make("li", {},
    make("code", {}, run.command), make("span", { class: "soft" }, ` ${run.seconds.toFixed(1)} s${run.error ? ", failed: " + run.error : ""}`)))))));
listContents();
offerThemes();
