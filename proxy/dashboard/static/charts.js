// Draws charts from the JSON of /hone/v1/charts; without scripts pages show the server's images. Positions are shares of
// the plot, so nothing depends on the window. Names become text nodes. The view is in the address, behind #view?.

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_S = 86400;
const TIME_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  ...[1, 2, 7, 14, 28, 56, 112, 364, 1820].map((days) => days * DAY_S)];
const MOST_X = 5; // labels, which fit beside each other on a telephone
const MOST_Y = 4;
const MOST_DOTS = 60; // more points have a band instead of bars, and no dots
const INKS = 8;
const UNIT = 1000; // the plot's own coordinates, in both directions

// --- figures and labels (pure)

// The smallest of 1, 2, 5 times a power of ten that divides a span into at most `most` parts.
export const niceStep = (span, most) => {
  const power = 10 ** Math.floor(Math.log10(span / most));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => span / step <= most * (1 + 1e-9));
};

// Multiples of a nice step within a range.
export const numberTicks = (low, high, most, least = 0) => {
  const step = Math.max(niceStep(high - low || 1, most), least);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) found.push(+(n * step).toPrecision(12));
  return { step, at: found };
};

const two = (n) => String(n).padStart(2, "0");
const shifted = (at, offset) => new Date((at + offset) * 1000);
const dayText = (date) => `${MONTHS[date.getUTCMonth()]} ${date.getUTCDate()}`;
const clockText = (date, seconds) =>
  `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}${seconds ? `:${two(date.getUTCSeconds())}` : ""}`;

// Round times of a zone within a range; `day` is said at the first time of each day.
export const timeTicks = (low, high, most, offset, least = 0) => {
  const step = TIME_STEPS_S.find((one) => one >= least && (high - low) / one <= most) ?? TIME_STEPS_S.at(-1);
  const found = [];
  let before = "";
  for (let n = Math.ceil((low + offset) / step); n * step - offset <= high; n++) {
    const date = shifted(n * step - offset, offset);
    const day = step >= DAY_S ? String(date.getUTCFullYear()) : dayText(date);
    const text = step >= DAY_S ? dayText(date) : clockText(date, step < 60);
    found.push({ at: n * step - offset, text, day: day === before ? "" : day });
    before = day;
  }
  return found;
};

// A time as it is read at a point.
export const timeText = (at, offset) => {
  const date = shifted(at, offset);
  return `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())} ${clockText(date, at % 60 !== 0)}`;
};

// A value as it is read at a point: three digits, whole from a thousand on.
export const valueText = (value, share = false) => {
  if (value === null || value === undefined) return "–";
  if (share) return `${+(value * 100).toPrecision(3)} %`;
  if (Math.abs(value) < 1000) return String(+value.toPrecision(3));
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
};

// A value beside a grid line, with as many decimals as the distance to the next one needs.
export const tickText = (value, step, share = false) => {
  if (share) return `${+(value * 100).toFixed(6)} %`;
  if (value === 0) return "0";
  const size = Math.max(Math.abs(value), step);
  const [unit, sign] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([unit]) => size >= unit) ?? [1, ""];
  if (size < 1e-4) return value.toExponential(0);
  return (value / unit).toFixed(Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9))) + sign;
};

// Text with control and format characters made visible, on one line, cut.
export const plainText = (text, most = 60) => {
  const seen = String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
  return seen.length > most ? `${seen.slice(0, most - 1)}…` : seen;
};

// The positions of a chart, and the range that shows all of them with room for their bars.
export const positions = (chart) => {
  const given = chart.axis.at.length === chart.places.length ? chart.axis.at : null;
  const at = given ?? chart.places.map((_, n) => n);
  const gaps = at.slice(1).map((one, n) => one - at[n]).filter((gap) => gap > 0);
  const gap = gaps.length ? Math.min(...gaps) : 1;
  return { at, gap, low: (at[0] ?? 0) - gap / 2, high: (at.at(-1) ?? 0) + gap / 2 };
};

// The lowest and highest value of what is drawn, with some room.
export const extent = (values, { share, bars }) => {
  if (share) return [0, 1];
  const known = values.filter((value) => value !== null && value !== undefined && Number.isFinite(value));
  if (!known.length) return [0, 1];
  let low = Math.min(...known), high = Math.max(...known);
  if (bars || (low > 0 && low < high * 0.6)) low = Math.min(0, low);
  if (bars) high = Math.max(0, high);
  const room = (high - low) * 0.05 || Math.abs(high) * 0.1 || 0.5;
  return [low === 0 ? 0 : low - room, high === 0 && low < 0 ? 0 : high + room];
};

// The view of a chart within an address' fragment: a range of positions, or none, and the names of hidden series.
export const readView = (fragment, name) => {
  const words = new URLSearchParams(fragment.startsWith("#view?") ? fragment.slice(6) : "");
  const ends = (words.get(`${name}.x`) ?? "").split(",").map(Number);
  const range = ends.length === 2 && ends.every(Number.isFinite) && ends[0] < ends[1] ? ends : null;
  return { range, hidden: words.getAll(`${name}.hide`) };
};

// The fragment with a chart's view in place of the one that it had.
export const writeView = (fragment, name, { range, hidden }) => {
  const words = new URLSearchParams(fragment.startsWith("#view?") ? fragment.slice(6) : "");
  words.delete(`${name}.x`);
  words.delete(`${name}.hide`);
  if (range) words.set(`${name}.x`, range.map((end) => +end.toFixed(2)).join(","));
  for (const one of hidden) words.append(`${name}.hide`, one);
  return words.size ? `#view?${words}` : "";
};

// A range moved into the whole one; null if it shows everything.
export const within = (range, whole, least) => {
  let [low, high] = range;
  const length = Math.max(high - low, least);
  if (length >= whole[1] - whole[0]) return null;
  low = Math.min(Math.max((low + high - length) / 2, whole[0]), whole[1] - length);
  return [low, low + length];
};

// --- elements

const SVG = "http://www.w3.org/2000/svg";
const filled = (made, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const svg = (name, attributes = {}, ...children) => filled(document.createElementNS(SVG, name), attributes, children);
const html = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
const across = (kind, y) => svg("line", { class: kind, x1: 0, x2: "100%", y1: y, y2: y });
const down = (kind, x) => svg("line", { class: kind, x1: x, x2: x, y1: 0, y2: "100%" });
// The ends of a point's interval; null if it has none.
const ends = (one, n) => ((one.low[n] ?? one.high[n] ?? null) === null ? null : [one.low[n], one.high[n]]);
const percent = (part) => `${+(part * 100).toFixed(3)}%`;

const loading = new Map(); // address → the answer that is awaited: the charts of one page come in one answer
const newest = new Map(); // address → the charts of the last answer
const load = (address) => {
  if (!loading.has(address)) {
    const asked = fetch(address, { headers: { accept: "application/json" } }).then(async (answer) => {
      if (!answer.ok) throw new Error(`the answer was ${answer.status}`);
      newest.set(address, await answer.json());
      return newest.get(address);
    });
    loading.set(address, asked.finally(() => loading.delete(address)));
  }
  return loading.get(address);
};

class HoneChart extends HTMLElement {
  #chart = null;
  #view = { range: null, hidden: [] };
  #cursor = null; // the index of the position that is read; null: the last one
  #drag = null; // where a drag began, in the plot's coordinates
  #parts = null;

  connectedCallback() {
    window.addEventListener("hashchange", this.#moved);
    const known = newest.get(this.dataset.charts);
    if (known?.[this.dataset.name]) this.#show(known);
    this.#load();
  }

  disconnectedCallback() {
    window.removeEventListener("hashchange", this.#moved);
  }

  async #load() {
    try {
      this.#show(await load(this.dataset.charts));
    } catch (error) {
      if (this.#chart) return;
      const again = html("button", { type: "button" }, "Try again");
      again.addEventListener("click", () => { said.remove(); this.#load(); });
      const said = html("p", { class: "faint", role: "status" }, `The chart could not be loaded: ${error.message}. `, again);
      this.append(said);
    }
  }

  #show(charts) {
    this.#chart = charts[this.dataset.name] ?? null;
    if (!this.#chart) throw new Error("the answer has no such chart");
    this.#view = readView(location.hash, this.dataset.name);
    if (!this.#parts) this.#build();
    this.#draw();
  }

  #moved = () => {
    if (!this.#chart) return;
    this.#view = readView(location.hash, this.dataset.name);
    this.#draw();
  };

  #change(view) {
    Object.assign(this.#view, view);
    const fragment = writeView(location.hash, this.dataset.name, this.#view);
    history.replaceState(history.state, "", location.pathname + location.search + fragment);
    this.#draw();
  }

  #build() {
    const button = (text, label, act) => {
      const made = html("button", { type: "button", "aria-label": label, title: label }, text);
      made.addEventListener("click", act);
      return made;
    };
    const title = plainText(this.#chart.title);
    const parts = this.#parts = {
      reset: button("Reset", `${title}: show everything`, () => this.#change({ range: null })),
      legend: html("ul", { class: "legend", "aria-label": "Series" }),
      values: html("output", { class: "values", "aria-live": "polite" }),
      plot: html("div", { class: "plot", tabindex: "0", role: "group",
        "aria-label": `${title}. Arrow keys read the values, plus and minus zoom, 0 shows everything.` }),
    };
    const zoom = html("span", { class: "zoom" }, parts.reset, button("−", `${title}: zoom out`, () => this.#zoom(2)),
      button("+", `${title}: zoom in`, () => this.#zoom(0.5)));
    this.append(html("div", { class: "head" }, html("strong", {}, title), zoom), parts.plot, parts.legend, parts.values);
    parts.plot.addEventListener("keydown", (event) => this.#key(event));
    parts.plot.addEventListener("pointerdown", (event) => this.#press(event));
    parts.plot.addEventListener("pointermove", (event) => this.#move(event));
    parts.plot.addEventListener("pointerup", (event) => this.#release(event));
    for (const name of ["pointercancel", "pointerleave"]) parts.plot.addEventListener(name, () => this.#leave());
  }

  // --- drawing

  get #shown() {
    return this.#chart.series.map((one, n) => ({ ...one, ink: n % INKS })).filter((one) => !this.#view.hidden.includes(one.name));
  }

  #draw() {
    const chart = this.#chart, { at, gap, low, high } = positions(chart), series = this.#shown;
    const whole = [low, high];
    const range = this.#view.range && within(this.#view.range, whole, gap);
    const [from, to] = range ?? whole;
    const seen = [...at.keys()].filter((n) => at[n] >= from && at[n] <= to);
    const sums = seen.map((n) => series.reduce((sum, one) => sum + (one.values[n] ?? 0), 0));
    const values = chart.bars ? sums : series.flatMap((one) => seen.flatMap((n) => [one.values[n], one.low[n], one.high[n]]));
    const [bottom, top] = extent([...values, ...chart.levels.map((level) => level.value)], chart);
    const scale = { x: (value) => (value - from) / (to - from), y: (value) => 1 - (value - bottom) / (top - bottom) };
    Object.assign(this.#parts, { at, gap, whole, from, to, seen, scale, series });
    const inner = svg("g", {}, ...(chart.bars ? this.#bars() : this.#lines()));
    const cursor = svg("g", { class: "cursor" });
    const titled = svg("title", { id: `chart-${this.dataset.name}` }, plainText(chart.title));
    const clip = { class: "clip", width: "100%", height: "100%", viewBox: `0 0 ${UNIT} ${UNIT}`, preserveAspectRatio: "none" };
    const image = svg("svg", { class: "drawing", role: "img", width: "100%", height: "180", "aria-labelledby": titled.id },
      titled, ...this.#grid(bottom, top), ...this.#places(), svg("svg", clip, inner), ...this.#points(), ...this.#levels(), cursor);
    Object.assign(this.#parts, { inner, cursor });
    this.#parts.plot.replaceChildren(image);
    this.#parts.reset.disabled = !range;
    this.#legend();
    this.#read();
  }

  #grid(bottom, top) {
    const { step, at } = numberTicks(bottom, top, MOST_Y);
    return at.flatMap((value) => {
      const y = percent(this.#parts.scale.y(value));
      return [across("grid", y), svg("text", { x: -6, y, dy: ".32em", "text-anchor": "end" }, tickText(value, step, this.#chart.share))];
    });
  }

  #places() {
    const { at, gap, from, to, seen, scale } = this.#parts, { kind, utc_offset_s: offset } = this.#chart.axis;
    const every = Math.ceil(seen.length / MOST_X);
    const labels = kind === "times" ? timeTicks(from, to, MOST_X, offset, gap)
      : kind === "numbers" && seen.length > MOST_X ? numberTicks(from, to, MOST_X, 1).at.map((one) => ({ at: one, text: String(one) }))
      : seen.filter((_, n) => n % every === 0).map((n) => ({ at: at[n], text: plainText(this.#chart.places[n], 9) }));
    return labels.flatMap(({ at: place, text, day }) => {
      const label = (words, dy) => svg("text", { x: percent(scale.x(place)), y: "100%", dy, "text-anchor": "middle" }, words);
      return day ? [label(text, "1.4em"), label(day, "2.7em")] : [label(text, "1.4em")];
    });
  }

  #x = (n) => +(this.#parts.scale.x(this.#parts.at[n]) * UNIT).toFixed(2);
  #y = (value) => +(this.#parts.scale.y(value) * UNIT).toFixed(2);

  #bars() {
    const { at, gap, from, to, series } = this.#parts, wide = gap * 0.84 / (to - from) * UNIT;
    const below = at.map(() => 0);
    return series.flatMap((one) => at.flatMap((_, n) => {
      const value = one.values[n] ?? 0, start = below[n];
      if (!value) return [];
      below[n] += value;
      const top = this.#y(Math.max(start, below[n])), height = this.#y(Math.min(start, below[n])) - top;
      return [svg("rect", { class: `bar s${one.ink}`, x: this.#x(n) - wide / 2, y: top, width: wide, height })];
    }));
  }

  // A line of each series, broken where time passed without a value; many intervals become a band.
  #lines() {
    const isTime = this.#chart.axis.kind === "times";
    return this.#parts.series.flatMap((one) => {
      const made = [], known = [...one.values.keys()].filter((n) => one.values[n] !== null);
      const sure = known.filter((n) => ends(one, n));
      if (sure.length > MOST_DOTS) {
        const edge = (side) => sure.map((n) => `${this.#x(n)},${this.#y(one[side][n])}`);
        made.push(svg("polygon", { class: `band s${one.ink}`, points: [...edge("high"), ...edge("low").reverse()].join(" ") }));
      }
      const d = known.map((n, place) => {
        const broken = place === 0 || (isTime && n - known[place - 1] > 1);
        return `${broken ? "M" : "L"}${this.#x(n)} ${this.#y(one.values[n])}`;
      }).join("");
      return [...made, svg("path", { class: `line s${one.ink}`, d })];
    });
  }

  #dot(one, n, r) {
    const { at, scale } = this.#parts;
    return svg("circle", { class: `dot s${one.ink}`, cx: percent(scale.x(at[n])), cy: percent(scale.y(one.values[n])), r });
  }

  // Dots and bars of intervals, which keep their shape; only points without neighbours where there are many.
  #points() {
    if (this.#chart.bars) return [];
    const { at, seen, scale, series } = this.#parts;
    return series.flatMap((one) => {
      const many = one.values.filter((value) => value !== null).length > MOST_DOTS;
      return seen.filter((n) => one.values[n] !== null).flatMap((n) => {
        const alone = (one.values[n - 1] ?? null) === null && (one.values[n + 1] ?? null) === null;
        if (many && !alone) return [];
        const dot = this.#dot(one, n, 3);
        if (many || !ends(one, n)) return [dot];
        const x = percent(scale.x(at[n])), [y1, y2] = ends(one, n).map((end) => percent(scale.y(end)));
        return [svg("line", { class: `interval s${one.ink}`, x1: x, x2: x, y1, y2 }), dot];
      });
    });
  }

  #levels() {
    const { at, seen, scale } = this.#parts;
    const levels = this.#chart.levels.flatMap(({ name, value }) => {
      const y = percent(scale.y(value));
      return [across("level", y), svg("text", { x: "100%", y, dy: "-.3em", "text-anchor": "end" }, plainText(name, 24))];
    });
    const marks = this.#chart.marks.filter((mark) => seen.includes(mark.at));
    return [...levels, ...marks.map((mark) => down("mark", percent(scale.x(at[mark.at]))))];
  }

  #legend() {
    const { hidden } = this.#view;
    if (this.#chart.series.length < 2) return;
    const focused = [...this.#parts.legend.querySelectorAll("button")].indexOf(document.activeElement);
    this.#parts.legend.replaceChildren(...this.#chart.series.map(({ name }, n) => {
      const off = hidden.includes(name);
      const made = html("button", { type: "button", class: `quiet s${n % INKS}`, "aria-pressed": String(!off) }, plainText(name, 40));
      made.addEventListener("click", () => this.#change({ hidden: off ? hidden.filter((one) => one !== name) : [...hidden, name] }));
      return html("li", {}, made);
    }));
    this.#parts.legend.querySelectorAll("button")[focused]?.focus();
  }

  // The values at the cursor, else the last ones, as text below the plot, and as dots on it.
  #read() {
    const { at, seen, scale, series, values, cursor } = this.#parts, { axis, share, places, marks, bars } = this.#chart;
    const last = seen.findLast((one) => series.some(({ values }) => values[one] !== null)) ?? seen.at(-1);
    const n = this.#cursor !== null && seen.includes(this.#cursor) ? this.#cursor : last;
    if (n === undefined) { values.textContent = "No point in this range."; return; }
    const place = axis.kind === "times" ? timeText(at[n], axis.utc_offset_s) : plainText(places[n]);
    const said = series.map((one) => {
      const sure = ends(one, n)?.map((end) => valueText(end, share)).join(" to ");
      return `${plainText(one.name, 40)} ${valueText(one.values[n], share)}${sure ? ` (95 %: ${sure})` : ""}`;
    });
    const noted = marks.filter((mark) => mark.at === n).map((mark) => plainText(mark.name));
    values.textContent = [`${axis.name} ${place}`.trim(), ...said, ...noted].join(" · ");
    const x = percent(scale.x(at[n]));
    const dots = bars ? [] : series.filter((one) => one.values[n] !== null).map((one) => this.#dot(one, n, 4.5));
    cursor.replaceChildren(...(this.#cursor === null ? [] : [down("now", x), ...dots]));
  }

  // --- what a person does

  #zoom(factor, around = null) {
    const { at, from, to, whole, gap, seen } = this.#parts;
    const middle = around ?? (this.#cursor !== null && seen.includes(this.#cursor) ? at[this.#cursor] : (from + to) / 2);
    const half = (to - from) * factor / 2;
    this.#change({ range: within([middle - half, middle + half], whole, gap) });
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { seen, at } = this.#parts, now = this.#cursor ?? seen.at(-1) ?? 0;
    const go = (n) => {
      this.#cursor = Math.min(Math.max(n, 0), at.length - 1);
      const { from, to } = this.#parts, x = at[this.#cursor];
      if (x < from || x > to) this.#zoom(1, x);
      else this.#read();
    };
    const acts = {
      ArrowLeft: () => go(this.#cursor === null ? now : now - 1), ArrowRight: () => go(now + 1),
      Home: () => go(seen[0] ?? 0), End: () => go(seen.at(-1) ?? 0),
      "+": () => this.#zoom(0.5), "-": () => this.#zoom(2), 0: () => this.#change({ range: null }),
      Escape: () => { this.#cursor = null; this.#read(); },
    };
    if (!Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  }

  // Where a pointer is, from 0 to UNIT.
  #pointed(event) {
    const matrix = this.#parts.inner.getScreenCTM();
    return Math.min(Math.max((event.clientX - matrix.e) / matrix.a, 0), UNIT);
  }

  #value = (u) => this.#parts.from + u / UNIT * (this.#parts.to - this.#parts.from);

  #press(event) {
    if (event.button !== 0) return;
    this.#drag = this.#pointed(event);
    this.#parts.plot.setPointerCapture(event.pointerId);
  }

  #move(event) {
    const u = this.#pointed(event), { at, seen, inner } = this.#parts, x = this.#value(u);
    this.#cursor = seen.reduce((best, n) => (best === null || Math.abs(at[n] - x) < Math.abs(at[best] - x) ? n : best), null);
    this.#read();
    inner.querySelector(".selection")?.remove();
    if (this.#drag !== null)
      inner.append(svg("rect", { class: "selection", x: Math.min(u, this.#drag), y: 0, width: Math.abs(u - this.#drag), height: UNIT }));
  }

  #release(event) {
    const began = this.#drag, u = this.#pointed(event);
    this.#drag = null;
    this.#parts.inner.querySelector(".selection")?.remove();
    if (began === null || Math.abs(u - began) < UNIT / 50) return;
    const { whole, gap } = this.#parts;
    this.#change({ range: within([this.#value(Math.min(u, began)), this.#value(Math.max(u, began))], whole, gap) });
  }

  #leave() {
    if (this.#drag !== null) return;
    this.#cursor = null;
    this.#read();
  }
}

if (!customElements.get("hone-chart")) customElements.define("hone-chart", HoneChart);
