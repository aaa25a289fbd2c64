// The table of methods and tasks: another measure, another order.
const MEASURES = {
  mse: { says: "Mean squared error; lower is better.", show: (x) => x.toExponential(2), better: (a, b) => a < b },
  mae: {
    says: "Mean absolute error in points; lower is better.",
    show: (x) => (100 * x).toFixed(2),
    better: (a, b) => a < b,
  },
  spearman: {
    says: "Rank correlation of forecast and score (Spearman): 1 is the right order.",
    show: (x) => x.toFixed(3),
    better: (a, b) => a > b,
  },
  coverage: {
    says: `Share of scores inside the ${data.level_text} interval: nearest to ${data.level_text} is best.`,
    show: (x) => percent(x, 0),
    better: (a, b) => Math.abs(a - data.level) < Math.abs(b - data.level),
  },
};
const comparison = { measure: "mse", column: null, rising: true };
const table = $("#comparison");
const valueAt = (method, task) => data.tasks[task].measures[data.methods[method]][comparison.measure];

function fillTable() {
  const { says, show, better } = MEASURES[comparison.measure];
  $("#comparison-says").textContent = says;
  const best = data.tasks.map((_, t) =>
    data.methods
      .map((_, m) => valueAt(m, t))
      .filter((v) => v !== null)
      .reduce((a, b) => (a === null || better(b, a) ? b : a), null),
  );
  for (const row of $$("tbody tr", table))
    $$("td", row).forEach((td, t) => {
      const value = valueAt(row.dataset.method, t);
      td.textContent = value === null ? "–" : show(value);
      td.classList.toggle("best", value !== null && value === best[t]);
    });
  const floor = $("tfoot", table);
  floor.hidden = comparison.measure !== "mse";
  $$("td", floor).forEach((td, t) => {
    const noise = data.tasks[t].noise;
    td.textContent = noise === null ? "–" : MEASURES.mse.show(noise);
  });
}

function sortTable(column) {
  comparison.rising = comparison.column === column ? !comparison.rising : true;
  comparison.column = column;
  const key = (row) => (column === 0 ? data.methods[row.dataset.method] : valueAt(row.dataset.method, column - 1));
  const rows = $$("tbody tr", table).sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    return (x < y ? -1 : x > y ? 1 : 0) * (comparison.rising ? 1 : -1);
  });
  $("tbody", table).append(...rows);
  $$("thead th", table).forEach((th, c) =>
    th.setAttribute("aria-sort", c !== column ? "none" : comparison.rising ? "ascending" : "descending"),
  );
}

$$("thead button", table).forEach((button, c) => button.addEventListener("click", () => sortTable(c)));
for (const input of $$("#measure input")) {
  input.addEventListener("change", () => {
    comparison.measure = input.value;
    fillTable();
  });
}
fillTable();

tables.comparison = () => ({
  header: ["task", "method", "mse", "mae", "r2", "spearman", "pairs", "coverage", "width", "n_test", "noise_floor"],
  rows: data.tasks.flatMap((task) =>
    data.methods.map((m) => {
      const x = task.measures[m];
      return [task.name, m, x.mse, x.mae, x.r2, x.spearman, x.pairs, x.coverage, x.width, x.n_test, task.noise];
    }),
  ),
});
tables.provenance = () => ({
  header: ["what", "value"],
  rows: [
    ...Object.entries(data.provenance.details),
    ...Object.entries(data.provenance.files),
    ...Object.entries(data.provenance.left_out).map(([k, v]) => [`left out: ${k}`, v]),
  ],
});
tables.models = () => {
  const m = data.models;
  return {
    header: ["model", "family", "params", "tokens", "flops", "role"],
    rows: m.model.map((name, i) => [name, m.family[i], m.params[i], m.tokens[i], m.flops[i], m.role[i]]),
  };
};
