// The figures: rows from the page's data into the specifications that came with it.
const drawn = new Map(); // element → { spec, view }

const fillIn = (value, words) =>
  typeof value === "string"
    ? (words[value] ?? value)
    : value && typeof value === "object"
      ? Array.isArray(value)
        ? value.map((v) => fillIn(v, words))
        : Object.fromEntries(Object.entries(value).map(([k, v]) => [k, fillIn(v, words)]))
      : value;

// Draw a figure, or give the drawn one new rows where its specification is the same.
async function draw(element, name, rows, { words = {}, signals = {}, label } = {}) {
  if (label) element.setAttribute("aria-label", label);
  const key = name + JSON.stringify(words);
  const old = drawn.get(element);
  if (old && old.key === key) {
    const view = await old.view;
    for (const [k, v] of Object.entries(signals)) view.signal(k, v);
    for (const [k, v] of Object.entries(rows)) view.data(k, v);
    await view.runAsync();
    return;
  }
  const spec = fillIn(data.figures[name], words);
  spec.datasets = rows;
  for (const parameter of spec.params || []) if (parameter.name in signals) parameter.value = signals[parameter.name];
  const view = window.vegaEmbed(element, spec, { renderer: "svg", actions: false }).then((made) => made.view);
  drawn.set(element, { key, view });
  if (old) (await old.view).finalize();
  await view;
}

const modelsOn = () => data.models.model.map((_, i) => i).filter((i) => state.families.has(data.models.family[i]));
const intervalOf = (f, i) => (f.low[i] === null ? "none" : `${percent(f.low[i])} – ${percent(f.high[i])}`);

function row(i, task, method) {
  const f = task.forecasts[method],
    family = data.models.family[i];
  return {
    model: data.models.model[i],
    family,
    hollow: hollow(family),
    role: data.models.role[i],
    params: data.models.params[i] || 1,
    size: count(data.models.params[i]),
    observed: task.observed[i],
    forecast: f.forecast[i],
    low: f.low[i],
    high: f.high[i],
    interval: intervalOf(f, i),
  };
}
const held = (task, method) =>
  modelsOn()
    .map((i) => row(i, task, method))
    .filter((r) => r.role === "test" && r.observed !== null && r.forecast !== null);

// ---- forecast against observed: the first screen, and method by method

function ends(rows) {
  const values = rows.flatMap((r) => [r.observed, r.forecast, r.low, r.high]).filter((v) => v !== null);
  const [low, high] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  return { bottom: Math.max(0, Math.floor(low * 20) / 20), top: Math.min(1, Math.ceil(high * 20) / 20) };
}
function drawForecasts(element, name, task, method, signals) {
  const rows = held(task, method);
  const missed = rows.length ? rows.reduce((sum, r) => sum + Math.abs(r.forecast - r.observed), 0) / rows.length : null;
  const label = `${task.name}, ${method}: forecast against observed score of ${rows.length} held-out models${missed === null ? "" : `, mean absolute error ${(100 * missed).toFixed(1)} points`}`;
  const ideal = [signals.bottom, signals.top].map((v) => ({ observed: v, forecast: v }));
  return draw(element, name, { points: rows, ideal }, { signals, label });
}
async function drawCards() {
  const method = data.methods[state.method];
  for (const [i, task] of data.tasks.entries())
    await drawForecasts($(`#card-${i}`), "card", task, method, ends(held(task, method)));
}
async function drawMultiples() {
  const task = data.tasks[state.task];
  const signals = ends(data.methods.flatMap((m) => held(task, m).map((r) => ({ ...r, low: null, high: null }))));
  for (const [i, method] of data.methods.entries())
    await drawForecasts($(`#multiple-${i}`), "multiple", task, method, signals);
}
const heldTable = (pairs) => ({
  header: ["task", "method", "model", "family", "observed", "forecast", "low", "high"],
  rows: pairs.flatMap(([task, m]) =>
    held(task, m).map((r) => [task.name, m, r.model, r.family, r.observed, r.forecast, r.low, r.high]),
  ),
});
tables.cards = () => heldTable(data.tasks.map((task) => [task, data.methods[state.method]]));
tables.multiples = () => heldTable(data.methods.map((m) => [data.tasks[state.task], m]));

// ---- capability against accuracy

const curveRows = (law) =>
  law.capability.map((c, k) => ({
    capability: c,
    accuracy: law.accuracy[k],
    low: law.low ? law.low[k] : null,
    high: law.high ? law.high[k] : null,
  }));
function lawRows() {
  const task = data.tasks[state.task],
    method = data.methods[state.method],
    law = task.laws[method];
  if (!law) return { law: null, points: [] };
  const points = modelsOn()
    .filter((i) => law.points[i] !== null && task.observed[i] !== null)
    .map((i) => ({
      ...row(i, task, method),
      role: data.first_fold_role[i],
      capability: law.points[i],
      accuracy: task.observed[i],
    }));
  return { law, points };
}
async function drawLaw() {
  const task = data.tasks[state.task],
    method = data.methods[state.method],
    { law, points } = lawRows();
  const plot = $("#law .plot");
  $("#law figcaption").textContent = law
    ? `${task.name} by ${method}: ${points.length} models`
    : `${method} reads neither losses nor compute, so it has no capability to draw; choose another method above.`;
  plot.style.display = law ? "" : "none";
  if (!law) return;
  const reads = task.forecasts[method].reads[0].split(":")[0];
  const across =
    {
      flops: "log₁₀ of training FLOPs",
      ladder: "loss expected from parameters and training tokens",
      score: "weighted score on other benchmarks",
    }[reads] ??
    (task.forecasts[method].averaged
      ? "minus the averaged log-odds (lower is better)"
      : "weighted loss (lower is better)");
  await draw(
    plot,
    law.log ? "law-log" : "law",
    { points, curve: curveRows(law) },
    {
      words: { "{across}": across },
      label: `${task.name}: capability by ${method} against accuracy of ${points.length} models with the fitted law`,
    },
  );
}
tables.law = () => ({
  header: ["task", "method", "model", "family", "params", "role", "capability", "observed", "forecast", "low", "high"],
  rows: lawRows().points.map((p) => [
    data.tasks[state.task].name,
    data.methods[state.method],
    p.model,
    p.family,
    p.params,
    p.role,
    p.capability,
    p.observed,
    p.forecast,
    p.low,
    p.high,
  ]),
});

// ---- convergence, with its slider

function stepErrors(steps) {
  const rows = (role, values, at) =>
    values.map((mse, k) => ({ role, step: at ? at[k] : k, mse })).filter((r) => r.mse > 0);
  return [
    ...rows("train", steps.train),
    ...rows("validation", steps.validation),
    ...rows("test", steps.test, steps.step),
  ];
}
function stepPoints(steps, k) {
  const task = data.tasks[state.task];
  return modelsOn()
    .filter((i) => task.observed[i] !== null && (steps.capability[k][i] ?? null) !== null)
    .map((i) => ({
      ...row(i, task, "paper"),
      role: data.first_fold_role[i],
      capability: steps.capability[k][i],
      accuracy: task.observed[i],
    }));
}
async function drawSteps() {
  const steps = data.steps[state.task],
    slider = $("#step");
  slider.max = steps.step.length - 1;
  const k = Math.min(state.step ?? steps.step.length - 1, steps.step.length - 1);
  slider.value = k;
  $("#step-is").textContent = `${steps.step[k]} of ${steps.step.at(-1)}, chosen: ${steps.chosen}`;
  slider.setAttribute("aria-valuetext", `step ${steps.step[k]}`);
  const points = stepPoints(steps, k),
    log = points.every((p) => p.capability > 0);
  const words = { "{across}": "weighted loss at this step (lower is better)" };
  const error = steps.test[k];
  await draw(
    $("#step-points .plot"),
    log ? "step-log" : "step",
    { points, curve: curveRows(steps.curves[k]) },
    {
      words,
      label: `Capability against accuracy at step ${steps.step[k]}; squared error on test models ${error === null ? "unknown" : error.toExponential(1)}`,
    },
  );
  await draw(
    $("#step-errors .plot"),
    "errors",
    { errors: stepErrors(steps), now: [{ step: steps.step[k] }] },
    { label: `Squared error of training, validation and test models by step; now at ${steps.step[k]}` },
  );
}
if (data.steps) {
  $("#step").addEventListener("input", (event) => change("step", +event.target.value));
  listen(["task", "families", "step"], drawSteps);
  tables["step-points"] = () => {
    const steps = data.steps[state.task],
      k = +$("#step").value;
    return {
      header: ["task", "step", "model", "family", "role", "capability", "observed"],
      rows: stepPoints(steps, k).map((p) => [
        data.tasks[state.task].name,
        steps.step[k],
        p.model,
        p.family,
        p.role,
        p.capability,
        p.observed,
      ]),
    };
  };
  tables["step-errors"] = () => ({
    header: ["task", "models", "step", "mse"],
    rows: stepErrors(data.steps[state.task]).map((r) => [data.tasks[state.task].name, r.role, r.step, r.mse]),
  });
}

// ---- figures with a section of their own: the rows of the chosen task

const chartRows = (chart) => chart.rows.filter((r) => r.task === data.tasks[state.task].name);
const drawChart = (chart) =>
  draw(
    $(`#${chart.name}-figure .plot`),
    chart.name,
    { rows: chartRows(chart) },
    { label: `${data.tasks[state.task].name}: ${chart.caption}` },
  );
for (const chart of data.charts) {
  listen(["task"], () => drawChart(chart));
  tables[`${chart.name}-figure`] = () => ({
    header: Object.keys(chart.rows[0]),
    rows: chartRows(chart).map((r) => Object.values(r)),
  });
}

// ---- the first drawing, from the top of the page downwards

$("#method").addEventListener("change", (event) => change("method", +event.target.value));
listen(["method"], () => ($("#about").textContent = data.about[data.methods[state.method]]));
listen(["method"], () =>
  data.verdicts[data.methods[state.method]].forEach(({ short, more }, i) => {
    $(`[data-verdict="${i}"]`).textContent = short;
    const rest = $(`[data-more="${i}"]`);
    rest.textContent = more;
    rest.parentElement.hidden = !more;
  }),
);
listen(["method", "families"], drawCards);
listen(["method", "families", "task"], drawLaw);
listen(["families", "task"], drawMultiples);
listen(["task", "families", "method", "step"], refreshRows);
(async () => {
  for (const act of [drawCards, drawLaw, drawMultiples, data.steps && drawSteps]) if (act) await act();
  for (const chart of data.charts) await drawChart(chart);
  document.documentElement.dataset.drawn = "yes";
})();
