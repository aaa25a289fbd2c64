// One figure; the menu saves it and opens no other site.
const actions = { export: true, source: false, compiled: false, editor: false };
const spec = JSON.parse(document.getElementById("data").textContent);
window
  .vegaEmbed("#figure", spec, { renderer: "svg", actions })
  .then(() => (document.documentElement.dataset.drawn = "yes"));
