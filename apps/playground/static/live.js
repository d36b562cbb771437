// Counters of running programs, asked for once a second. Whatever programs say is shown as text.
const EVERY_MS = 1000;
const ANSWER_MS_MAX = 10_000;
// Longer texts of cells are wrapped.
const LONG = 40;

// The figures at `address`. `describe(answer, before)` gives `{ text, problems, blocks }`; `before` is the
// answer of a second ago, of which rates are computed, if there was one. A block has a key, a title, lines of
// text, and tables: `{ label, titles, rows }`.
export class Panel {
  constructor(title, address, describe) {
    this.address = address;
    this.describe = describe;
    this.before = null;
    this.blocks = new Map();
    this.place = element("section", { ariaLabel: title });
    this.text = element("p", { className: "soft" });
    this.problems = element("div", {});
    this.body = element("div", {});
    this.place.append(element("h2", { textContent: title }), this.text, this.problems, this.body);
  }

  watch(place) {
    place.append(this.place);
    const look = async () => {
      if (!document.hidden) await this.look();
      setTimeout(look, EVERY_MS);
    };
    look();
  }

  async look() {
    try {
      const response = await fetch(this.address, { signal: AbortSignal.timeout(ANSWER_MS_MAX) });
      if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
      const answer = await response.json();
      this.show(this.describe(answer, this.before));
      this.before = answer;
    } catch (error) {
      this.before = null;
      this.show({ problems: [`rockery web gives no figures: ${error.message}`] });
    }
  }

  show({ text = "", problems = [], blocks = [] }) {
    change(this.text, text);
    paragraphs(this.problems, problems, "problem");
    const gone = new Set(this.blocks.keys());
    for (const block of blocks) {
      gone.delete(block.key);
      if (!this.blocks.has(block.key)) this.blocks.set(block.key, new Block(block.key));
      this.blocks.get(block.key).show(block);
    }
    for (const key of gone) {
      this.blocks.get(key).place.remove();
      this.blocks.delete(key);
    }
    // In the order of the answer; what is in its place stays there, with its focus and scroll position.
    blocks.forEach(({ key }, at) => {
      const { place } = this.blocks.get(key);
      if (this.body.children[at] !== place) this.body.insertBefore(place, this.body.children[at] ?? null);
    });
  }
}

// What one program has counted. Its elements stay from second to second, so that text can be selected and a
// table can be scrolled.
class Block {
  constructor(key) {
    this.place = element("section", { ariaLabel: key });
    this.title = element("h3", {});
    this.lines = element("div", {});
    this.tables = new Map();
    this.place.append(this.title, this.lines);
  }

  show({ title, lines = [], tables = [] }) {
    change(this.title, title);
    this.title.hidden = !title;
    paragraphs(this.lines, lines, "soft");
    for (const [label, table] of this.tables) table.hidden = !tables.some((one) => one.label === label);
    for (const { label, titles, rows } of tables) {
      if (!this.tables.has(label)) this.tables.set(label, this.add(label, titles));
      fill(this.tables.get(label).querySelector("tbody"), rows);
    }
  }

  // A table that can be scrolled by keys.
  add(label, titles) {
    const scroll = element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: label });
    const table = element("table", {});
    const head = element("tr", {});
    head.append(...titles.map((title) => element("th",
      { textContent: title.text ?? title, scope: "col", className: title.text ? "text" : "" })));
    table.append(element("thead", {}), element("tbody", {}));
    table.tHead.append(head);
    scroll.append(table);
    this.place.append(scroll);
    return scroll;
  }
}

function element(kind, properties) {
  return Object.assign(document.createElement(kind), properties);
}

function change(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A line is a text, or `{ problem: text }`.
function paragraphs(place, lines, className) {
  while (place.children.length > lines.length) place.lastChild.remove();
  lines.forEach((line, at) => {
    const one = place.children[at] ?? place.appendChild(element("p", {}));
    one.className = line.problem ? "problem" : className;
    change(one, line.problem ?? line);
  });
}

function fill(body, rows) {
  while (body.rows.length > rows.length) body.lastChild.remove();
  rows.forEach((cells, at) => {
    const row = body.rows[at] ?? body.insertRow();
    cells.forEach((cell, place) => {
      const one = row.cells[place] ?? row.insertCell();
      one.className = cell?.text === undefined ? "" : cell.text.length > LONG ? "text long" : "text";
      change(one, cell?.text ?? number(cell));
    });
  });
}

// A cell or a title of a column that is no number.
export const text = (value) => ({ text: String(value) });

// Whole numbers, or what `decimal` gives; nothing where a value is not known.
function number(value) {
  if (typeof value === "string") return value;
  return value === null || !Number.isFinite(value) ? "" : Math.round(value).toLocaleString("en");
}

// A number with so many decimal places; nothing where it is not known.
export function decimal(value, digits = 1) {
  if (value === null || !Number.isFinite(value)) return null;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// How much a counter grows in a second. Nothing without two values, and where it began again.
export function rate(now, before, seconds) {
  return before === undefined || now < before || !(seconds > 0) ? null : (now - before) / seconds;
}

// Seconds between two samples of a program's own clock.
export function seconds(now, before) {
  return before ? (now.at_ns - before.at_ns) / 1e9 : NaN;
}

// Millions.
export const mega = (value) => decimal(value === null ? null : value / 1e6);

// A number with its noun.
export const counted = (count, one, several) =>
  `${count.toLocaleString("en")} ${count === 1 ? one : several}`;

// What a list leaves out.
export function more(listed, total, what) {
  return total > listed ? [`and ${total - listed} more ${what}`] : [];
}
