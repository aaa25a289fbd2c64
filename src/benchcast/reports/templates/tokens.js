// Most and least salient tokens in context, and salience by source and kind.
function barRow(name, value, most, says, style = "", ...more) {
  const width = value === null ? 0 : Math.max(0, (100 * value) / most);
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, name),
    make("td", { class: "bar" }, make("span", { class: "fill", style: `width: ${width}%; ${style}` })),
    make("td", {}, says),
    ...more,
  );
}

function quotes(id, rows, show) {
  const head = make(
    "thead",
    {},
    make("tr", {}, ...["× mean", "text", "in context"].map((h) => make("th", { scope: "col" }, h))),
  );
  const body = rows.map((r) => {
    const [before, piece, after] = r.around;
    const open =
      r.at === null
        ? make("span", {}, r.text)
        : make(
            "button",
            {
              type: "button",
              onclick: () => {
                show(r.at, r.unit);
                $("#text").scrollIntoView({ block: "center" });
                $("#text").focus();
              },
            },
            r.text,
          );
    return make(
      "tr",
      {},
      make("td", {}, short(r.salience)),
      make("td", {}, open),
      make("td", { class: "quote", dir: "auto" }, inLine(before), make("mark", {}, inLine(piece)), inLine(after)),
    );
  });
  $(id).replaceChildren(
    make(
      "caption",
      {},
      id === "#most" ? "One line for each different token" : "Ties: the largest loss first",
    ),
    head,
    make("tbody", {}, ...body),
  );
}
function groups(id, rows, name) {
  const most = Math.max(...rows.map((r) => r.mean ?? 0), 0.001);
  const head = make(
    "thead",
    {},
    make(
      "tr",
      {},
      ...[name, "", "mean", "in answers", "share of all"].map((h) =>
        h ? make("th", { scope: "col" }, h) : make("td", { class: "wide" }),
      ),
    ),
  );
  const body = rows.map((r) =>
    barRow(
      r.name,
      r.mean,
      most,
      short(r.mean),
      "",
      make("td", {}, short(r.answer)),
      make("td", {}, percent(r.share, 0)),
    ),
  );
  $(id).replaceChildren(make("caption", {}, "Times the mean of all tokens"), head, make("tbody", {}, ...body));
}
function drawLists(show) {
  const k = taskNow();
  quotes("#most", heat.most[k], show);
  const least = heat.least[k].filter((r) => Math.abs(r.salience) >= 0.005); // less is shown as zero
  quotes("#least", least, show);
  $("#least").closest(".pair > div").hidden = !least.length;
  const some = (rows) => rows.filter((r) => r.share === null || r.share >= 0.005);
  groups("#by-source", some(heat.by_source[k]), "source");
  groups("#by-kind", some(heat.by_kind[k]), "kind");
}

tables["heat-tokens"] = () => ({
  header: ["task", "list", "salience", "token", "before", "after", "text", "source", "kind", "part"],
  rows: heat.tasks.flatMap((task, k) =>
    [
      ["most", heat.most[k]],
      ["least", heat.least[k]],
    ].flatMap(([list, rows]) =>
      rows.map((r) => [
        task,
        list,
        r.salience,
        r.around[1],
        r.around[0],
        r.around[2],
        r.text,
        r.source,
        r.kind,
        r.part,
      ]),
    ),
  ),
});
tables["heat-groups"] = () => ({
  header: ["task", "by", "name", "tokens", "mean", "prompt", "answer", "share"],
  rows: heat.tasks.flatMap((task, k) =>
    [
      ["source", heat.by_source[k]],
      ["kind", heat.by_kind[k]],
    ].flatMap(([by, rows]) => rows.map((r) => [task, by, r.name, r.tokens, r.mean, r.prompt, r.answer, r.share])),
  ),
});
