// The devices of the machine that serves the page, and the programs that have them open, once a second.
const EVERY_MS = 1000;

let before = new Map();

export function watch(place) {
  place.hidden = false;
  const look = async () => {
    if (!document.hidden) {
      try {
        show(place, await (await fetch("api/devices")).json());
      } catch (error) {
        place.textContent = `The devices of this machine cannot be read: ${error.message}`;
      }
    }
    setTimeout(look, EVERY_MS);
  };
  look();
}

function show(place, { devices }) {
  const now = new Map();
  const rows = devices.flatMap((device) => device.programs.map((program) => {
    const key = `${device.name} ${program.pid}`;
    const at = { ms: performance.now(), counters: program.counters };
    now.set(key, at);
    return [device.name, `${program.program} (${program.pid})`, program.queue_pairs_total,
      ...["sent_packets", "received_packets", "retransmitted_packets"].flatMap((name) =>
        [program.counters[name] ?? 0, rate(before.get(key), at, name)])];
  }));
  before = now;
  const names = devices.map(({ name }) => name).join(", ");
  const head = document.createElement("h2");
  head.textContent = "Devices of this machine";
  const text = document.createElement("p");
  text.className = "soft";
  const none = `${names || "None"}. No program has one open: rockery run -- ib_write_bw`;
  text.textContent = rows.length ? names : none;
  const counters = ["packets sent", "per s", "received", "per s", "resent", "per s"];
  const titles = ["device", "program", "queue pairs", ...counters];
  place.replaceChildren(head, text, ...(rows.length ? [table(titles, rows)] : []));
}

function rate(was, is, name) {
  if (!was) return "";
  const count = (is.counters[name] ?? 0) - (was.counters[name] ?? 0);
  return Math.round(1000 * count / (is.ms - was.ms));
}

function table(titles, rows) {
  const line = (cells, kind) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => Object.assign(document.createElement(kind), {
      textContent: typeof cell === "number" ? cell.toLocaleString("en") : cell,
    })));
    return row;
  };
  const whole = document.createElement("table");
  whole.append(line(titles, "th"), ...rows.map((row) => line(row, "td")));
  return whole;
}
