// The editor: a text area, and below it the same text in colours, with line numbers and marked mistakes.
import { completions } from "./schema.js";

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
const escape = (text) => text.replace(/[&<>]/g, (letter) => ENTITIES[letter]);

// Comments, strings, headers of tables and keys of one line of TOML.
function coloured(line) {
  if (/^\s*\[.*\]\s*(#.*)?$/.test(line)) return `<span class="head">${escape(line)}</span>`;
  const parts = /("(?:[^"\\]|\\.)*"|'[^']*')|(#.*$)|([A-Za-z0-9_."-]+)(?=\s*=)/g;
  let html = "";
  let end = 0;
  for (const part of line.matchAll(parts)) {
    const kind = part[2] !== undefined ? "comment" : part[3] !== undefined ? "key" : "string";
    html += `${escape(line.slice(end, part.index))}<span class="${kind}">${escape(part[0])}</span>`;
    end = part.index + part[0].length;
  }
  return html + escape(line.slice(end));
}

export class Editor {
  #text = document.getElementById("text");
  #layer = document.getElementById("layer");
  #choices = document.getElementById("choices");
  #wrong = new Set();
  #options = [];
  #from = 0;
  #chosen = 0;

  // `changed` is called with each text that is typed.
  constructor(changed) {
    this.schema = null;
    this.#text.addEventListener("input", () => {
      this.#draw();
      changed(this.#text.value);
      this.#complete(false);
    });
    this.#text.addEventListener("scroll", () => this.#follow());
    this.#text.addEventListener("blur", () => this.#close());
    this.#text.addEventListener("keydown", (event) => this.#key(event));
    // The text area keeps the focus while an entry is clicked.
    this.#choices.addEventListener("mousedown", (event) => {
      event.preventDefault();
      const index = [...this.#choices.children].indexOf(event.target.closest("li"));
      if (index >= 0) this.#take(index);
    });
  }

  show(text) {
    this.#text.value = text;
    this.#wrong.clear();
    this.#draw();
  }

  // Marks lines, counted from 1.
  mark(lines) {
    this.#wrong = new Set(lines);
    this.#text.setAttribute("aria-invalid", String(lines.length > 0));
    this.#draw();
  }

  jump(line, column) {
    const before = this.#text.value.split("\n").slice(0, line - 1).join("\n");
    const at = before.length + (line > 1 ? 1 : 0) + Math.max(0, column - 1);
    this.#text.focus();
    this.#text.setSelectionRange(at, at);
    this.#text.scrollTop = Math.max(0, (line - 6) * this.#lineHeight());
  }

  #lineHeight() {
    return parseFloat(getComputedStyle(this.#text).lineHeight);
  }

  #draw() {
    const line = (text, index) =>
      `<span class="line${this.#wrong.has(index + 1) ? " wrong" : ""}">${coloured(text)}</span>`;
    this.#layer.innerHTML = this.#text.value.split("\n").map(line).join("");
    this.#follow();
  }

  #follow() {
    this.#layer.scrollTop = this.#text.scrollTop;
    this.#layer.scrollLeft = this.#text.scrollLeft;
  }

  #key(event) {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.#complete(true);
    } else if (!this.#choices.hidden) {
      const count = this.#options.length;
      const step = { ArrowDown: 1, ArrowUp: count - 1 }[event.key];
      if (step) this.#choose((this.#chosen + step) % count);
      else if (event.key === "Enter" && !event.ctrlKey) this.#take(this.#chosen);
      else if (event.key === "Escape") this.#close();
      else return;
      event.preventDefault();
    }
  }

  // Offers what can stand here; while typing only after a first letter.
  #complete(asked) {
    if (!this.schema) return;
    const cursor = this.#text.selectionStart;
    const { from, options } = completions(this.schema, this.#text.value, cursor);
    if (options.length === 0 || (!asked && from === cursor)) return this.#close();
    [this.#options, this.#from] = [options.slice(0, 60), from];
    this.#choices.replaceChildren(...this.#options.map((option, index) => {
      const entry = document.createElement("li");
      entry.id = `choice-${index}`;
      entry.role = "option";
      const about = document.createElement("small");
      about.textContent = option.about;
      entry.append(option.label, about);
      return entry;
    }));
    const lines = this.#text.value.slice(0, cursor).split("\n");
    const top = lines.length * this.#lineHeight() - this.#text.scrollTop + 8;
    this.#choices.style.top = `${top}px`;
    this.#choices.style.left = `${Math.min(52 + 7.8 * lines.at(-1).length, this.#text.clientWidth * 0.5)}px`;
    this.#choices.hidden = false;
    this.#choose(0);
  }

  #choose(index) {
    this.#chosen = index;
    [...this.#choices.children].forEach((entry, other) => {
      entry.setAttribute("aria-selected", other === index);
    });
    this.#choices.children[index].scrollIntoView({ block: "nearest" });
    this.#text.setAttribute("aria-activedescendant", `choice-${index}`);
  }

  #take(index) {
    this.#text.setRangeText(this.#options[index].text, this.#from, this.#text.selectionStart, "end");
    this.#close();
    this.#text.dispatchEvent(new Event("input"));
    this.#close();
  }

  #close() {
    this.#choices.hidden = true;
    this.#text.removeAttribute("aria-activedescendant");
  }
}
