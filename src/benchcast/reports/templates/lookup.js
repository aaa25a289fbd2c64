// What will model X score on task Y, how sure is that, and which tokens carry it.
const modelBox = $("#model");
for (const family of data.families) {
  const group = make("optgroup", { label: family });
  data.models.model.forEach(
    (name, i) => data.models.family[i] === family && group.append(make("option", { value: i }, name)),
  );
  modelBox.append(group);
}
const waiting = data.models.role.indexOf("new"),
  tested = data.models.role.lastIndexOf("test");
modelBox.value = Math.max(waiting >= 0 ? waiting : tested, 0); // a model that waits for its score first

const ROLE_SAYS = {
  test: "This model was held out: the fit has not used its score.",
  validation: "This model was used to select settings of the fit, so this is not a test.",
  train: "The fit was trained on this model: this shows the quality of the fit, not of the forecast.",
  new: "This model has losses and no score yet.",
  "": "This model is not part of the split.",
};

function strip(forecast, low, high, observed) {
  const at = (x) => `left: ${100 * x}%`;
  return make(
    "div",
    { class: "range", "aria-hidden": "true" },
    make("div", { class: "track" }),
    low === null ? null : make("div", { class: "band", style: `left: ${100 * low}%; width: ${100 * (high - low)}%` }),
    make("div", { class: "at", style: at(forecast) }),
    observed === null ? null : make("div", { class: "seen", style: at(observed) }),
    make(
      "div",
      { class: "ends" },
      make("span", {}, "0%"),
      make("span", {}, observed === null ? "● forecast" : "● forecast   ◆ observed"),
      make("span", {}, "100%"),
    ),
  );
}

function words(task, i, f) {
  const method = data.methods[state.method],
    observed = task.observed[i],
    measured = task.measures[method],
    said = [];
  const span =
    f.low[i] === null
      ? "There are too few families for an interval."
      : f.low[i] <= 0 && f.high[i] >= 1
        ? `The ${data.level_text} interval holds every score from 0% to 100%: nothing is known of this model.`
        : `With ${data.level_text} confidence between ${percent(f.low[i])} and ${percent(f.high[i])}.`;
  said.push(span);
  if (observed !== null) {
    const off = f.forecast[i] - observed,
      inside = f.low[i] !== null && observed >= f.low[i] && observed <= f.high[i];
    said.push(
      `Observed: ${percent(observed)}, ${(100 * Math.abs(off)).toFixed(1)} points ${off > 0 ? "below" : "above"} the forecast${f.low[i] === null ? "" : inside ? ", inside the interval" : ", outside the interval"}.`,
    );
  }
  said.push(ROLE_SAYS[data.models.role[i]]);
  if (f.cautions[i]) said.push(`Caution: ${f.cautions[i]}.`);
  const covered =
    measured.coverage === null
      ? ""
      : `; on this task they held ${percent(measured.coverage, 0)} of ${measured.n_test} unseen scores`;
  const errors = f.stronger.includes(i) ? `${f.intervals_from}, and on stronger models that were hidden` : f.intervals_from;
  const sure = `How sure: intervals come from errors on ${errors}${covered}.`;
  return [make("p", {}, said.join(" ")), make("p", {}, sure), carriers(task)];
}

function carriers(task) {
  const k = data.heat ? data.heat.tasks.indexOf(task.name) : -1;
  if (k < 0) return null;
  const tokens = data.heat.most[k].slice(0, 6).flatMap((t) => [make("code", {}, inLine(t.around[1]).trim()), " "]);
  return make("p", {}, "Most salient tokens: ", ...tokens, make("a", { href: "#heat" }, "see all tokens"));
}

function answer() {
  const i = +modelBox.value,
    task = data.tasks[state.task],
    method = data.methods[state.method],
    f = task.forecasts[method];
  const name = data.models.model[i];
  if (f.forecast[i] === null) {
    $("#answer").replaceChildren(
      make("p", {}, `${method} gives no forecast of ${name} on ${task.name}${f.lacks[i] ? `: ${f.lacks[i]}` : ""}.`),
    );
  } else {
    const big = make(
      "div",
      { class: "big" },
      percent(f.forecast[i]),
      make("small", {}, `${name} on ${task.name}, by ${method}`),
    );
    $("#answer").replaceChildren(
      big,
      strip(f.forecast[i], f.low[i], f.high[i], task.observed[i]),
      make("div", { class: "words" }, ...words(task, i, f).filter(Boolean)),
    );
  }
  const rows = data.tasks.map((t, k) => {
    const g = t.forecasts[method];
    return make(
      "tr",
      k === state.task ? { class: "here" } : {},
      make("th", { scope: "row" }, t.name),
      make("td", {}, percent(g.forecast[i])),
      make("td", {}, intervalOf(g, i).replaceAll("%", "")),
      make("td", {}, percent(t.observed[i])),
    );
  });
  const head = make(
    "thead",
    {},
    make("tr", {}, ...["task", "forecast", `${data.level_text} interval`, "observed"].map((h) => make("th", { scope: "col" }, h))),
  );
  $("#answers").replaceChildren(
    make("caption", {}, `${name}: all tasks by ${method}`),
    head,
    make("tbody", {}, ...rows),
  );
}
modelBox.addEventListener("change", answer);
listen(["task", "method"], answer);
answer();

tables.lookup = () => ({
  header: ["model", "family", "role", "task", "method", "forecast", "low", "high", "observed"],
  rows: data.models.model.flatMap((name, i) =>
    data.tasks.flatMap((t) =>
      data.methods.map((m) => {
        const f = t.forecasts[m];
        return [
          name,
          data.models.family[i],
          data.models.role[i],
          t.name,
          m,
          f.forecast[i],
          f.low[i],
          f.high[i],
          t.observed[i],
        ];
      }),
    ),
  ),
});
