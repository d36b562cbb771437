// The devices of the machine that serves the page, and the programs that have them open.
import { Panel, rate, text } from "./live.js";

const COUNTERS = ["sent_packets", "received_packets", "retransmitted_packets"];
const TITLES = [text("device"), text("program"), "queue pairs", "packets sent", "per s", "received", "per s",
  "resent", "per s"];

export const panel = new Panel("Devices of this machine", "api/devices", describe);

function describe(answer, before) {
  answer.at_ms = performance.now();
  const elapsed = before ? (answer.at_ms - before.at_ms) / 1000 : NaN;
  const rows = answer.devices.flatMap((device) => device.programs.map((program) => {
    const was = before?.devices.find(({ name }) => name === device.name)
      ?.programs.find(({ pid }) => pid === program.pid);
    const cells = COUNTERS.flatMap((name) => {
      const now = program.counters[name] ?? 0;
      return [now, rate(now, was && (was.counters[name] ?? 0), elapsed)];
    });
    const named = text(`${program.program} (${program.pid})`);
    return [text(device.name), named, program.queue_pairs_total, ...cells];
  }));
  const names = answer.devices.map(({ name }) => name).join(", ") || "None";
  const table = { label: "Devices and their programs", titles: TITLES, rows };
  return {
    text: rows.length ? names : `${names}. No program has one open: rockery run -- ib_write_bw`,
    blocks: rows.length ? [{ key: "devices", title: "", tables: [table] }] : [],
  };
}
