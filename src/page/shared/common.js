// What the pages share beside charts: access to parts, tables, the list of contents and the choice of colours.

const part = (id) => document.getElementById(id);

/** A labelled select; options [[value, text]]. The label is its parent. */
function select(label, options, value) {
  const box = make("select", {}, options.map(([v, text]) => make("option", { value: v, selected: String(v) === String(value) }, text)));
  make("label", {}, label, box);
  return box;
}
function table(head, rows, name) {
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, make("table", {},
    make("thead", {}, make("tr", {}, head.map((h) => make("th", { scope: "col" }, h)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map((cell) => make("td", {}, cell)))))));
}
const note = (...text) => make("p", { class: "soft" }, ...text);
const count = (value) => value.toLocaleString("en");

/** Fills the navigation from the headings of the sections. */
function listContents() {
  document.querySelectorAll("main h2").forEach((h) => {
    part("contents").append(make("a", { href: "#" + h.parentNode.id }, h.textContent));
  });
}

/** The button between light and dark, which begins with what the system prefers. */
function offerThemes() {
  const root = document.documentElement, button = part("theme");
  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const tell = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(dark()));
    button.setAttribute("aria-label", dark() ? "Use light colours" : "Use dark colours");
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    tell();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();
}
