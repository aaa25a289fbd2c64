// The heat map: one text at a time, drawn when it is looked at.
if (heat) {
  let current = 0;
  let token = null;
  let found = [];

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
    const text = heat.texts[current],
      needle = $("#search").value.trim().toLowerCase(),
      hits = hitsIn(text.text, needle);
    let at = 0;
    const spans = piecesOf(current).map((piece, k) => {
      const unit = firsts[current] + k,
        s = share(unit),
        from = at;
      at += piece.length;
      const span = make("span", { "data-unit": k }, ...shownPieces(piece));
      if (s === null) span.classList.add("lost");
      else span.style.setProperty("--a", Math.abs(s).toFixed(3));
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
    if (token !== null) choose(Math.min(token, spans.length - 1));
    else $("#token").replaceChildren(make("p", { class: "note" }, "No token chosen."));
  }
  function hitsIn(text, needle) {
    const hits = [],
      low = text.toLowerCase();
    if (needle)
      for (let at = low.indexOf(needle); at >= 0; at = low.indexOf(needle, at + needle.length))
        hits.push([at, at + needle.length]);
    return hits;
  }

  // ---- one token: its salience, and each family's loss on it

  function choose(k) {
    token = k;
    for (const span of $$("#text .now")) span.classList.remove("now");
    const span = $(`#text [data-unit="${k}"]`);
    if (!span) return;
    span.classList.add("now");
    const unit = firsts[current] + k,
      t = times(unit),
      piece = piecesOf(current)[k],
      together = heat.together[unit];
    const part = partOf(current, k);
    const says = t === null ? "not used: some model has no loss here" : `salience ${short(t)} × the mean`;
    const about = [says, kindOf(unit), part, together ? `${together} tokens that split a character, shown as one` : ""]
      .filter(Boolean)
      .join(" · ");
    $("#token").replaceChildren(
      make("p", {}, make("code", { dir: "auto" }, inLine(piece).replaceAll(" ", "␣")), " ", about),
      lossBars(unit),
    );
  }
  function lossBars(unit) {
    const values = lossesOf(unit);
    const most = Math.max(0.001, ...values.filter((v) => v !== null));
    const rows = heat.families.map((family, f) =>
      barRow(
        family,
        values[f],
        most,
        values[f] === null ? "–" : `${values[f].toFixed(2)} nats`,
        `background: var(--c${f % HUES})`,
      ),
    );
    return make(
      "table",
      { class: "bars" },
      make("caption", {}, "Mean loss of each family on this token"),
      make("colgroup", {}, make("col"), make("col", { class: "wide" }), make("col")),
      make("tbody", {}, ...rows),
    );
  }
  const unitUnder = (event) => event.target.closest?.("[data-unit]");
  for (const kind of ["mouseover", "click"])
    $("#text").addEventListener(kind, (event) => unitUnder(event) && choose(+unitUnder(event).dataset.unit));
  $("#text").addEventListener("keydown", (event) => {
    const last = heat.texts[current].cuts.length - 1,
      now = token ?? -1,
      back = getComputedStyle($("#text")).direction === "rtl" ? 1 : -1;
    const next = {
      ArrowLeft: now + back,
      ArrowRight: now - back,
      ArrowUp: now - 10,
      ArrowDown: now + 10,
      Home: 0,
      End: last,
    }[event.key];
    if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(last, next)));
    $("#text .now")?.scrollIntoView({ block: "nearest" });
  });
  $("#text").addEventListener("focus", () => token === null && choose(0));

  // ---- finding texts

  const SHOWN = 100;
  for (const source of new Set(heat.texts.map((t) => t.source)))
    $("#source").append(make("option", { value: source }, source));
  function search() {
    const needle = $("#search").value.trim().toLowerCase(),
      source = $("#source").value;
    found = heat.texts
      .map((_, i) => i)
      .filter((i) => {
        const t = heat.texts[i];
        return (
          (!source || t.source === source) &&
          (!needle || t.text.toLowerCase().includes(needle) || t.id.toLowerCase().includes(needle))
        );
      });
    if ($("#order").value === "salience") {
      const mean = new Map(found.map((i) => [i, meanOf(i)]));
      found.sort((a, b) => mean.get(b) - mean.get(a));
    }
    const more = found.length > SHOWN ? `, the first ${SHOWN} listed` : "";
    $("#matches").textContent = found.length
      ? `${found.length} of ${heat.texts.length} texts${more}`
      : "no text matches";
    $("#found").replaceChildren(
      ...found
        .slice(0, SHOWN)
        .map((i) =>
          make(
            "li",
            {},
            make(
              "button",
              { type: "button", "data-text": i, onclick: () => show(i) },
              make("b", {}, heat.texts[i].id),
              make("span", { dir: "auto" }, inLine(heat.texts[i].text.slice(0, 90))),
            ),
          ),
        ),
    );
    if (found.length && !found.includes(current)) {
      current = found[0];
      token = null;
    }
    drawText();
  }
  function show(i, unit = null) {
    current = i;
    token = unit;
    drawText();
  }
  const turn = (by) =>
    found.length && show(found[(Math.max(found.indexOf(current), 0) + by + found.length) % found.length]);
  $("#search").addEventListener("input", search);
  for (const id of ["#source", "#order"]) $(id).addEventListener("change", search);
  $("#previous").addEventListener("click", () => turn(-1));
  $("#next").addEventListener("click", () => turn(1));

  tables["heat-text"] = () => ({
    header: ["text", "token", "task", "salience", "kind", "part", ...heat.families.map((f) => `nats of ${f}`)],
    rows: piecesOf(current).map((piece, k) => {
      const unit = firsts[current] + k;
      const about = [kindOf(unit), partOf(current, k)];
      return [heat.texts[current].id, piece, heat.tasks[taskNow()], times(unit), ...about, ...lossesOf(unit)];
    }),
  });

  listen(["task"], () => {
    search();
    drawLists(show);
  });
  search();
  drawLists(show);
  if (heat.open !== null) show(heat.open);
  else if (found.length) show(found[0]);
  document.documentElement.dataset.heat = "yes";
}
