// The packed numbers of the heat map: salience and losses of every token that is shown.
const heat = data.heat;
const MISSING = -32768; // of salience: some model has no loss here
const NONE = 65535; // of losses
const STEPS = 32000; // of the log scale of salience
const decode = (text, Type) => new Type(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
const packed = heat && {
  salience: heat.salience.map((s) => decode(s, Int16Array)),
  losses: heat.losses.map((s) => decode(s, Uint16Array)),
  kinds: decode(heat.kind, Uint8Array),
};
const firsts = [0]; // the first unit of each text
if (heat) for (const text of heat.texts) firsts.push(firsts.at(-1) + text.cuts.length);

const taskNow = () => Math.max(heat.tasks.indexOf(data.tasks[state.task].name), 0);
const kindOf = (unit) => heat.kinds[packed.kinds[unit]];
const lossesOf = (unit) => packed.losses.map((l) => (l[unit] === NONE ? null : l[unit] / 1000));
const partOf = (index, k) => (heat.texts[index].answer !== null && k >= heat.texts[index].answer ? "answer" : "prompt");

// Salience as a share of the greatest on the log scale, and as times the mean.
function share(unit) {
  const s = packed.salience[taskNow()][unit];
  return s === MISSING ? null : s / STEPS;
}
function times(unit) {
  const s = share(unit);
  return s === null ? null : Math.sign(s) * Math.expm1(Math.abs(s) * Math.log1p(heat.reach[taskNow()]));
}

function meanOf(index) {
  const all = [];
  for (let unit = firsts[index]; unit < firsts[index + 1]; unit++) all.push(times(unit));
  const known = all.filter((t) => t !== null);
  return known.length ? known.reduce((sum, t) => sum + Math.abs(t), 0) / known.length : 0;
}

function piecesOf(index) {
  const text = heat.texts[index];
  let at = 0;
  return text.cuts.map((n) => text.text.slice(at, (at += n)));
}
