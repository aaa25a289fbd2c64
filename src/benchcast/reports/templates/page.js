// What all parts of the page share: its data, elements made without parsing text, one chosen task, CSV files.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// An element; strings among the children become text, never markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((c) => c !== null));
  return element;
}

const percent = (x, digits = 1) => (x === null || x === undefined ? "–" : `${(100 * x).toFixed(digits)}%`);
const short = (x) =>
  x === null || x === undefined
    ? "–"
    : Math.abs(x) >= 100
      ? x.toFixed(0)
      : Math.abs(x) >= 10
        ? x.toFixed(1)
        : x.toFixed(2);
function count(x) {
  if (x === null) return "unknown";
  for (const [size, letter] of [
    [1e12, "T"],
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "k"],
  ])
    if (x >= size) return `${+(x / size).toPrecision(3)}${letter}`;
  return String(x);
}

// Control and direction characters act on what is around them: they are shown by number instead.
const ODD =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const visible = (text) =>
  text.replace(ODD, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
const inLine = (text) => visible(text).replaceAll("\n", "⏎").replaceAll("\t", "⇥");

// ---- one state for the page; each part that shows it listens to its changes

const state = { task: 0, method: data.used || 0, families: new Set(data.families || []), step: null };
const listeners = [];
const listen = (...args) => listeners.push(args);
function change(what, value) {
  state[what] = value;
  for (const [names, act] of listeners) if (names.includes(what)) act();
}

for (const box of $$("[data-tasks]")) {
  data.tasks.forEach((task, i) => {
    const input = make("input", {
      type: "radio",
      name: `task-of-${box.dataset.tasks}`,
      value: i,
      checked: i === 0,
      onchange: () => change("task", i),
    });
    box.append(make("label", {}, input, make("span", {}, task.name)));
  });
}
listen(["task"], () => {
  for (const box of $$("[data-tasks]")) $(`input[value="${state.task}"]`, box).checked = true;
});

const HUES = data.colours.light.length;
const hollow = (family) => (data.families.indexOf(family) >= HUES ? 1 : 0);
const hue = (family) => `var(--c${data.families.indexOf(family) % HUES})`;

for (const box of $$("fieldset.families")) {
  for (const family of data.families) {
    const input = make("input", { type: "checkbox", checked: true, value: family });
    input.addEventListener("change", () => {
      const on = new Set(state.families);
      if (input.checked) on.add(family);
      else on.delete(family);
      change("families", on);
    });
    box.append(
      make(
        "label",
        {},
        input,
        make("i", { style: `color: ${hue(family)}`, class: hollow(family) ? "hollow" : "" }),
        family,
      ),
    );
  }
  box.append(
    make("button", { type: "button", onclick: () => change("families", new Set(data.families)) }, "all"),
    make("button", { type: "button", onclick: () => change("families", new Set()) }, "none"),
  );
}
listen(["families"], () => {
  for (const input of $$("fieldset.families input")) input.checked = state.families.has(input.value);
});

// ---- the data behind each figure, as a file and as a table

const tables = {}; // name → () => ({ header, rows })
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  let text = String(value);
  if (/^'*[=+\-@\t\r\n＝＋－＠]/.test(text)) text = `'${text}`; // a spreadsheet would run it; see study/csv_cells.py
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
const csv = ({ header, rows }) => [header, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";

for (const button of $$("[data-csv]")) {
  button.addEventListener("click", () => {
    const name = button.dataset.csv;
    const address = URL.createObjectURL(new Blob([csv(tables[name]())], { type: "text/csv;charset=utf-8" }));
    make("a", { href: address, download: `${name}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  });
}

const MOST_ROWS = 1000;
function fillRows(details) {
  const { header, rows } = tables[details.dataset.rows]();
  const body = rows
    .slice(0, MOST_ROWS)
    .map((row) =>
      make(
        "tr",
        {},
        ...row.map((v, i) =>
          make(i ? "td" : "th", i ? {} : { scope: "row" }, v === null || v === undefined ? "–" : String(v)),
        ),
      ),
    );
  const more =
    rows.length > MOST_ROWS
      ? `The first ${MOST_ROWS} of ${rows.length} rows; the CSV has them all.`
      : `${rows.length} rows`;
  $(".scroll", details).replaceChildren(
    make(
      "table",
      {},
      make("caption", {}, more),
      make("thead", {}, make("tr", {}, ...header.map((h) => make("th", { scope: "col" }, h)))),
      make("tbody", {}, ...body),
    ),
  );
}
const refreshRows = () => $$("details.rows[open]").forEach(fillRows);
for (const details of $$("details.rows")) details.addEventListener("toggle", () => details.open && fillRows(details));
