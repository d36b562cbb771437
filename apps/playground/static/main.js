// The page: an example or a file of one's own, settings, and the report of the run.
import { Editor } from "./editor.js";
import { has } from "./engine.js";
import { fromFragment, toFragment } from "./link.js";
import { attach } from "./network.js";

const byId = (id) => document.getElementById(id);
const MAIN = "file";
// Files are run this long after the last key.
const TYPING_MS = 400;

let worker = null;
let waiting = new Map();
let numbers = 0;
let examples = [];
let last = null;
let timer = 0;
// The file in the editor, and everything that a link holds.
let open = MAIN;
let mistakes = [];
let state = { name: "", text: "", files: {}, set: {} };

const editor = new Editor((text) => {
  if (open === MAIN) state.text = text;
  else state.files[open] = text;
  clearTimeout(timer);
  timer = setTimeout(run, TYPING_MS);
});

function spawn() {
  worker?.terminate();
  for (const { reject } of waiting.values()) reject(new Error("stopped"));
  waiting = new Map();
  worker = new Worker("worker.js", { type: "module" });
  worker.onmessage = ({ data }) => {
    if (data.done !== undefined) {
      byId("progress").value = data.done;
      return;
    }
    const { resolve, reject } = waiting.get(data.number) ?? {};
    waiting.delete(data.number);
    if (data.error) reject?.(new Error(data.error));
    else resolve?.(data.bytes);
  };
}

function ask(request) {
  const number = ++numbers;
  worker.postMessage({ number, request });
  return new Promise((resolve, reject) => waiting.set(number, { resolve, reject }));
}

const asJson = (bytes) => JSON.parse(new TextDecoder().decode(bytes));
const request = (action) => (
  { do: action, text: state.text, files: state.files, set: Object.entries(state.set) });

function say(text) {
  byId("status").textContent = text;
}

// A run that is under way is ended for the next one.
async function run() {
  clearTimeout(timer);
  if (waiting.size > 0) spawn();
  busy(true);
  remember();
  const started = performance.now();
  try {
    const answer = asJson(await ask(request("run")));
    busy(false);
    if (answer.problems) return problems(answer.problems);
    if (answer.refused) return problems([{ text: answer.refused }]);
    problems([]);
    show(answer, performance.now() - started);
  } catch (error) {
    if (error.message === "stopped") return;
    busy(false);
    // The memory of WebAssembly is not usable after a fault.
    spawn();
    problems([{ text: `The simulator failed: ${error.message}` }]);
  }
}

function busy(is) {
  byId("progress").hidden = byId("stop").hidden = !is;
  byId("progress").value = 0;
  byId("report").classList.toggle("busy", is);
  document.body.dataset.state = is ? "busy" : "idle";
  if (is) say("running");
}

function show(answer, took) {
  last = answer;
  const report = byId("report");
  report.innerHTML = answer.body;
  for (const { switch: name, system, text } of answer.vendors) {
    const [head, table] = [document.createElement("h2"), document.createElement("pre")];
    head.textContent = `${name}, as ${system} prints it`;
    table.textContent = text;
    report.append(head, table);
  }
  attach(report, answer.times_us, answer.loads);
  showCopyButtons(report);
  byId("exports").hidden = false;
  byId("port-names").replaceChildren(...answer.ports.map((name) => new Option(name)));
  byId("port").value ||= answer.ports[0] ?? "";
  dials(answer.dials);
  say(`${answer.events.toLocaleString("en")} events in ${(took / 1000).toFixed(2)} s`);
}

// The address follows the page, so that a reload keeps the edits: the name of an example, or all that differs.
const ADDRESS_MAX = 32000;
async function remember() {
  const shown = JSON.stringify(state);
  const example = examples.find(({ name }) => name === state.name);
  const { text, files, set } = example ?? {};
  const same = JSON.stringify({ text, files, set })
    === JSON.stringify({ text: state.text, files: state.files, set: state.set });
  const fragment = same ? state.name : await toFragment(state);
  if (fragment.length <= ADDRESS_MAX && shown === JSON.stringify(state)) {
    history.replaceState(null, "", `#${fragment}`);
  }
}

// The report of the last run without mistakes stays, dimmed, while there are some.
function problems(all) {
  mistakes = all;
  byId("report").classList.toggle("stale", all.length > 0);
  mark();
  byId("problems").replaceChildren(...all.map((problem) => {
    const button = document.createElement("button");
    const isMain = problem.file === MAIN && problem.text.startsWith(`${MAIN}:`);
    button.textContent = isMain ? mainName() + problem.text.slice(MAIN.length) : problem.text;
    button.onclick = () => {
      if (problem.file === MAIN || problem.file in state.files) {
        select(problem.file);
        editor.jump(problem.line, problem.column);
      }
    };
    return button;
  }));
  if (all.length > 0) say(all.length === 1 ? "one mistake" : `${all.length} mistakes`);
}

// Marks mistakes: their lines in the open file, and the tabs of all files that have some.
function mark() {
  const here = mistakes.filter((problem) => problem.line && problem.file === open);
  editor.mark(here.map((problem) => problem.line));
  for (const tab of byId("tabs").children) {
    const count = mistakes.filter(({ file }) => file === tab.dataset.file).length;
    tab.classList.toggle("wrong", count > 0);
    tab.title = count > 0 ? "has a mistake" : "";
  }
}

// Sliders for scales, choices for the rest.
function dials(all) {
  const focused = document.activeElement?.id;
  byId("dials").replaceChildren(...all.flatMap((dial, index) => {
    const label = document.createElement("label");
    label.textContent = dial.label;
    label.title = dial.path;
    label.htmlFor = `dial-${index}`;
    label.classList.toggle("changed", dial.path in state.set);
    const value = state.set[dial.path] ?? dial.values[dial.at];
    const set = (chosen) => {
      if (chosen === dial.values[dial.at]) delete state.set[dial.path];
      else state.set[dial.path] = chosen;
      command();
      clearTimeout(timer);
      timer = setTimeout(run, 120);
    };
    if (!dial.scale) {
      const choice = document.createElement("select");
      choice.id = label.htmlFor;
      const plain = (one) => one.replace(/[[\]"]/g, "") || "none";
      choice.append(...dial.values.map((one) => new Option(plain(one), one, false, one === value)));
      choice.onchange = () => set(choice.value);
      return [label, choice];
    }
    const slider = Object.assign(document.createElement("input"), {
      type: "range", id: label.htmlFor, min: 0, max: dial.values.length - 1,
      value: dial.values.indexOf(value),
    });
    const output = document.createElement("output");
    const tell = () => {
      output.textContent = dial.values[slider.value];
      slider.setAttribute("aria-valuetext", output.textContent);
    };
    slider.oninput = () => {
      tell();
      set(dial.values[slider.value]);
    };
    tell();
    return [label, slider, output];
  }));
  if (focused?.startsWith("dial-")) byId(focused)?.focus();
  command();
}

// The command line of the same run.
function command() {
  const quoted = (text) => (/^[\w./=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const sets = Object.entries(state.set).map(([path, value]) => ` \\\n  --set ${quoted(`${path}=${value}`)}`);
  byId("reset").hidden = sets.length === 0;
  byId("command").textContent = `rockery sim ${state.name || "file"}.toml${sets.join("")}`;
}

const mainName = () => `${state.name.split("/").at(-1) || "file"}.toml`;

function select(file) {
  open = file;
  editor.show(file === MAIN ? state.text : state.files[file]);
  byId("tabs").replaceChildren(...[MAIN, ...Object.keys(state.files)].map((name) => {
    const tab = document.createElement("button");
    tab.role = "tab";
    tab.textContent = name === MAIN ? mainName() : name;
    tab.dataset.file = name;
    tab.setAttribute("aria-selected", name === file);
    tab.onclick = () => select(name);
    return tab;
  }));
  mark();
}

function load(next) {
  state = { ...next, files: { ...next.files }, set: { ...next.set } };
  mistakes = [];
  byId("example").value = examples.some(({ name }) => name === state.name) ? state.name : "";
  byId("port").value = "";
  command();
  select(MAIN);
  run();
}

function save(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function capture() {
  const port = byId("port").value;
  busy(true);
  try {
    const bytes = await ask({ ...request("capture"), port });
    const OPENING_BRACE = 0x7b;
    if (bytes[0] === OPENING_BRACE) {
      const refusal = asJson(bytes);
      return problems(refusal.problems ?? [{ text: refusal.refused }]);
    }
    save(`${port.replaceAll(":", "-")}.pcap`, "application/vnd.tcpdump.pcap", bytes);
    say(`${bytes.length.toLocaleString("en")} bytes captured`);
  } catch (error) {
    if (error.message !== "stopped") problems([{ text: error.message }]);
  } finally {
    busy(false);
  }
}

async function copyLink() {
  location.hash = await toFragment(state);
  try {
    await navigator.clipboard.writeText(location.href);
    say("copied");
  } catch {
    say("the address bar has the link");
  }
}

async function fromAddress() {
  const fragment = location.hash.slice(1);
  const linked = fragment ? await fromFragment(fragment) : null;
  const named = examples.find(({ name }) => name === decodeURIComponent(fragment));
  if (fragment && !linked && !named) say("the link's state cannot be read");
  return linked ?? named ?? examples.find(({ name }) => name === "crs504/ecn-off") ?? examples[0];
}

byId("run").onclick = run;
byId("stop").onclick = () => {
  spawn();
  busy(false);
  say("stopped");
};
byId("reset").onclick = () => {
  state.set = {};
  command();
  run();
};
byId("link").onclick = copyLink;
byId("flows").onclick = () => save("flows.csv", "text/csv", last.csv.flows);
byId("ports").onclick = () => save("ports.csv", "text/csv", last.csv.ports);
byId("capture").onclick = capture;
byId("example").onchange = ({ target }) => load(examples.find(({ name }) => name === target.value));
addEventListener("hashchange", async () => {
  if (location.hash.slice(1) !== await toFragment(state)) load(await fromAddress());
});
addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.ctrlKey) {
    event.preventDefault();
    run();
  }
});

// The counters of the machine that serves the page.
async function live() {
  const panels = ["devices", "storage", "labs"].map((name) => import(`./${name}.js`));
  for (const { panel } of await Promise.all(panels)) panel.watch(byId("live"));
  byId("live").hidden = byId("to-live").hidden = false;
  byId("to-live").onclick = () => {
    byId("live").scrollIntoView();
    byId("live").focus();
  };
}

spawn();
say("loading");
try {
  const start = asJson(await ask({ do: "start" }));
  examples = start.examples.map((example) => ({ ...example, set: {} }));
  editor.schema = start.schema;
  const option = ({ name, title }) => new Option(`${name}: ${title}`, name);
  byId("example").replaceChildren(...examples.map(option));
  load(await fromAddress());
  if (has.live) await live();
} catch (error) {
  say(`The simulator cannot be loaded: ${error.message}`);
}
