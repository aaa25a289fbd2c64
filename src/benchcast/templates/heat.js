// The heat map: one text at a time, drawn when it is looked at.
const heat = data.heat;
if (heat) {
  const decode = (text, Type) => new Type(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const salience = heat.salience.map((s) => decode(s, Int16Array));
  const losses = heat.losses.map((s) => decode(s, Uint16Array));
  const kinds = decode(heat.kind, Uint8Array);
  const MISSING = -32768, NONE = 65535, STEPS = 32000;
  const firsts = [0];
  for (const text of heat.texts) firsts.push(firsts.at(-1) + text.cuts.length);
  let current = 0, token = null, found = [];

  const taskNow = () => Math.max(heat.tasks.indexOf(data.tasks[state.task].name), 0);
  const share = (unit) => (salience[taskNow()][unit] === MISSING ? null : salience[taskNow()][unit] / STEPS);
  const times = (unit, k = taskNow()) => {
    const s = salience[k][unit];
    return s === MISSING ? null : Math.sign(s) * Math.expm1((Math.abs(s) / STEPS) * Math.log1p(heat.reach[k]));
  };
  function meanOf(index) {
    let sum = 0, n = 0;
    for (let u = firsts[index]; u < firsts[index + 1]; u++) {
      const t = times(u);
      if (t !== null) { sum += Math.abs(t); n += 1; }
    }
    return n ? sum / n : 0;
  }
  function piecesOf(index) {
    const text = heat.texts[index];
    let at = 0;
    return text.cuts.map((n) => text.text.slice(at, (at += n)));
  }

  // ---- one text

  // Line breaks and tabs get a sign, other odd characters their number; the text itself stays text.
  function shownPieces(piece) {
    const parts = [];
    for (const part of piece.split(/(\r?\n|\t)/)) {
      if (part === "") continue;
      if (/^\r?\n$/.test(part)) parts.push(make("i", { "aria-hidden": "true" }, "⏎"), "\n");
      else if (part === "\t") parts.push(make("i", { "aria-hidden": "true" }, "⇥"), "\t");
      else parts.push(visible(part));
    }
    return parts;
  }
  function drawText() {
    const text = heat.texts[current], needle = $("#search").value.trim().toLowerCase(), hits = hitsIn(text.text, needle);
    let at = 0;
    const spans = piecesOf(current).map((piece, k) => {
      const unit = firsts[current] + k, s = share(unit), from = at;
      at += piece.length;
      const span = make("span", { "data-unit": k }, ...shownPieces(piece));
      if (s === null) span.classList.add("lost"); else span.style.setProperty("--a", Math.abs(s).toFixed(3));
      if (s < 0) span.classList.add("cold");
      if (text.answer !== null && k >= text.answer) span.classList.add("answer");
      if (hits.some(([a, b]) => a < at && b > from)) span.classList.add("hit");
      return span;
    });
    $("#text").replaceChildren(...spans);
    $("#text-title").textContent = `${text.id} · ${text.source}`;
    $("#reach").textContent = `${short(heat.reach[taskNow()])} × the mean`;
    $("#previous").disabled = $("#next").disabled = found.length < 2;
    for (const b of $$("#found button")) b.setAttribute("aria-current", +b.dataset.text === current);
    if (token !== null) choose(Math.min(token, spans.length - 1)); else $("#token").replaceChildren(make("p", { class: "note" }, "No token chosen."));
  }
  function hitsIn(text, needle) {
    const hits = [], low = text.toLowerCase();
    if (needle) for (let at = low.indexOf(needle); at >= 0; at = low.indexOf(needle, at + needle.length)) hits.push([at, at + needle.length]);
    return hits;
  }

  // ---- one token: its salience, and each family's loss on it

  function choose(k) {
    token = k;
    for (const span of $$("#text .now")) span.classList.remove("now");
    const span = $(`#text [data-unit="${k}"]`);
    if (!span) return;
    span.classList.add("now");
    const unit = firsts[current] + k, t = times(unit), piece = piecesOf(current)[k], together = heat.together[unit];
    const part = heat.texts[current].answer !== null && k >= heat.texts[current].answer ? "answer" : "prompt";
    const says = t === null ? "not used: some model has no loss here" : `salience ${short(t)} × the mean`;
    const about = [says, heat.kinds[kinds[unit]], part, together ? `${together} tokens that split a character, shown as one` : ""].filter(Boolean).join(" · ");
    $("#token").replaceChildren(make("p", {}, make("code", { dir: "auto" }, inLine(piece).replaceAll(" ", "␣")), " ", about), lossBars(unit));
  }
  function lossBars(unit) {
    const values = losses.map((l) => (l[unit] === NONE ? null : l[unit] / 1000));
    const most = Math.max(0.001, ...values.filter((v) => v !== null));
    const rows = heat.families.map((family, f) => barRow(family, values[f], most, values[f] === null ? "–" : `${values[f].toFixed(2)} nats`, `background: var(--c${f % HUES})`));
    return make("table", { class: "bars" }, make("caption", {}, "Mean loss of each family on this token"), make("colgroup", {}, make("col"), make("col", { class: "wide" }), make("col")), make("tbody", {}, ...rows));
  }
  function barRow(name, value, most, says, style = "", ...more) {
    const width = value === null ? 0 : Math.max(0, (100 * value) / most);
    return make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "bar" }, make("span", { class: "fill", style: `width: ${width}%; ${style}` })), make("td", {}, says), ...more);
  }
  const unitUnder = (event) => event.target.closest?.("[data-unit]");
  for (const kind of ["mouseover", "click"]) $("#text").addEventListener(kind, (event) => unitUnder(event) && choose(+unitUnder(event).dataset.unit));
  $("#text").addEventListener("keydown", (event) => {
    const last = heat.texts[current].cuts.length - 1, now = token ?? -1, back = getComputedStyle($("#text")).direction === "rtl" ? 1 : -1;
    const next = { ArrowLeft: now + back, ArrowRight: now - back, ArrowUp: now - 10, ArrowDown: now + 10, Home: 0, End: last }[event.key];
    if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(last, next)));
    $("#text .now")?.scrollIntoView({ block: "nearest" });
  });
  $("#text").addEventListener("focus", () => token === null && choose(0));

  // ---- finding texts

  const SHOWN = 100;
  for (const source of new Set(heat.texts.map((t) => t.source))) $("#source").append(make("option", { value: source }, source));
  function search() {
    const needle = $("#search").value.trim().toLowerCase(), source = $("#source").value;
    found = heat.texts.map((_, i) => i).filter((i) => {
      const t = heat.texts[i];
      return (!source || t.source === source) && (!needle || t.text.toLowerCase().includes(needle) || t.id.toLowerCase().includes(needle));
    });
    if ($("#order").value === "salience") {
      const mean = new Map(found.map((i) => [i, meanOf(i)]));
      found.sort((a, b) => mean.get(b) - mean.get(a));
    }
    const more = found.length > SHOWN ? `, the first ${SHOWN} listed` : "";
    $("#matches").textContent = found.length ? `${found.length} of ${heat.texts.length} texts${more}` : "no text matches; the one below stays";
    $("#found").replaceChildren(...found.slice(0, SHOWN).map((i) => make("li", {}, make("button", { type: "button", "data-text": i, onclick: () => show(i) }, make("b", {}, heat.texts[i].id), make("span", { dir: "auto" }, inLine(heat.texts[i].text.slice(0, 90)))))));
    if (found.length && !found.includes(current)) { current = found[0]; token = null; }
    drawText();
  }
  function show(i, unit = null) {
    current = i;
    token = unit;
    drawText();
  }
  const turn = (by) => found.length && show(found[(Math.max(found.indexOf(current), 0) + by + found.length) % found.length]);
  $("#search").addEventListener("input", search);
  for (const id of ["#source", "#order"]) $(id).addEventListener("change", search);
  $("#previous").addEventListener("click", () => turn(-1));
  $("#next").addEventListener("click", () => turn(1));

  // ---- most and least salient tokens, sources and kinds

  function quotes(id, rows) {
    const head = make("thead", {}, make("tr", {}, ...["× mean", "text", "in context"].map((h) => make("th", { scope: "col" }, h))));
    const body = rows.map((r) => {
      const [before, piece, after] = r.around;
      const open = r.at === null ? make("span", {}, r.text) : make("button", { type: "button", onclick: () => { show(r.at, r.unit); $("#text").scrollIntoView({ block: "center" }); $("#text").focus(); } }, r.text);
      return make("tr", {}, make("td", {}, short(r.salience)), make("td", {}, open), make("td", { class: "quote", dir: "auto" }, inLine(before), make("mark", {}, inLine(piece)), inLine(after)));
    });
    $(id).replaceChildren(make("caption", {}, id === "#most" ? "One line for each different token" : "Of equals, those with the greatest loss first"), head, make("tbody", {}, ...body));
  }
  function groups(id, rows, name) {
    const most = Math.max(...rows.map((r) => r.mean ?? 0), 0.001);
    const head = make("thead", {}, make("tr", {}, ...[name, "", "mean", "in answers", "share of all"].map((h) => (h ? make("th", { scope: "col" }, h) : make("td", { class: "wide" })))));
    const body = rows.map((r) => barRow(r.name, r.mean, most, short(r.mean), "", make("td", {}, short(r.answer)), make("td", {}, percent(r.share, 0))));
    $(id).replaceChildren(make("caption", {}, "Times the mean of all tokens"), head, make("tbody", {}, ...body));
  }
  function summary() {
    const k = taskNow();
    quotes("#most", heat.most[k]);
    quotes("#least", heat.least[k]);
    groups("#by-source", heat.by_source[k], "source");
    groups("#by-kind", heat.by_kind[k], "kind");
  }

  tables["heat-text"] = () => ({
    header: ["text", "token", "task", "salience", "kind", "part", ...heat.families.map((f) => `nats of ${f}`)],
    rows: piecesOf(current).map((piece, k) => {
      const unit = firsts[current] + k, t = heat.texts[current];
      return [t.id, piece, heat.tasks[taskNow()], times(unit), heat.kinds[kinds[unit]], t.answer !== null && k >= t.answer ? "answer" : "prompt", ...losses.map((l) => (l[unit] === NONE ? null : l[unit] / 1000))];
    }),
  });
  tables["heat-tokens"] = () => ({
    header: ["task", "list", "salience", "token", "before", "after", "text", "source", "kind", "part"],
    rows: heat.tasks.flatMap((task, k) => [["most", heat.most[k]], ["least", heat.least[k]]].flatMap(([list, rows]) => rows.map((r) => [task, list, r.salience, r.around[1], r.around[0], r.around[2], r.text, r.source, r.kind, r.part]))),
  });
  tables["heat-groups"] = () => ({
    header: ["task", "by", "name", "tokens", "mean", "prompt", "answer", "share"],
    rows: heat.tasks.flatMap((task, k) => [["source", heat.by_source[k]], ["kind", heat.by_kind[k]]].flatMap(([by, rows]) => rows.map((r) => [task, by, r.name, r.tokens, r.mean, r.prompt, r.answer, r.share]))),
  });

  listen(["task"], () => { search(); summary(); });
  search();
  summary();
  if (heat.open !== null) show(heat.open);
  else if (found.length) show(found[0]);
  document.documentElement.dataset.heat = "yes";
}
