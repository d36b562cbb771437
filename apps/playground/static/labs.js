// Labs of the user who serves the page: ports, hosts, and whether the lab keeps up with its clock.
import { counted, decimal, mega, more, Panel, rate, seconds, text } from "./live.js";

const PORTS = [text("port"), text("to"), "link Gb/s", "packets", "MB", "Gb/s", "load %", "ECN marked",
  "per s", "pauses sent", "per s", "paused ms/s", "dropped", "per s", text("reasons")];
const HOSTS = [text("host"), text("IPv4"), text("IPv6"), "devices", "RDMA out", "per s", "RDMA in", "per s",
  "frames out", "frames in", "lost"];

export const panel = new Panel("Labs", "api/labs", describe);

function describe({ labs, problems }, before) {
  const blocks = labs.map((lab) => block(lab, before?.labs.find(({ name, process, at_ns }) =>
    name === lab.name && process === lab.process && at_ns < lab.at_ns)));
  return { text: labs.length ? "" : "None runs: rockery lab up FILE", problems, blocks };
}

// Rates are by the lab's clock, which is slower than the machine's by `slowdown`.
function block(now, was) {
  const elapsed = seconds(now, was);
  const ports = now.ports.map((it) => port(it, was?.ports.find((one) => one.port === it.port), elapsed));
  const hosts = now.hosts.map((it) => {
    const before = was?.hosts.find(({ name }) => name === it.name)?.counters;
    const { counters } = it;
    const both = (name) => [counters[name], rate(counters[name], before?.[name], elapsed)];
    return [text(it.name), text(it.v4), text(it.v6), it.devices, ...both("rdma_sent"),
      ...both("rdma_received"), counters.frames_sent, counters.frames_received, counters.lost];
  });
  const count = (value) => value.toLocaleString("en");
  const { lateness: late } = now;
  const lateness = `late by ${count(late.p50_ns)} ns (median), ${count(late.p999_ns)} ns (99.9 %), `
    + `${count(late.max_ns)} ns (at most); the shortest link takes ${count(now.shortest_link_ns)} ns`;
  const simulated = now.simulated ? `, ${counted(now.simulated, "simulated host", "simulated hosts")}` : "";
  return {
    key: `${now.name} ${now.process}`,
    title: `Lab ${now.name} (process ${now.process})`,
    lines: [...(now.title ? [now.title] : []),
      `clock ${(now.at_ns / 1e9).toFixed(1)} s, slowed down ${count(now.slowdown)} times${simulated}; `
        + `dropped ${count(now.dropped)}, marked ${count(now.marked)}, pauses ${count(now.pauses)}`,
      now.valid ? `valid: ${lateness}` : { problem: `not valid: ${lateness}` },
      ...more(now.ports.length, now.ports_total, "ports"),
      ...more(now.hosts.length, now.hosts_total, "hosts")],
    tables: [...(ports.length ? [{ label: `Ports of ${now.name}`, titles: PORTS, rows: ports }] : []),
      { label: `Hosts of ${now.name}`, titles: HOSTS, rows: hosts }],
  };
}

function port(now, was, elapsed) {
  const dropped = (it) => it?.dropped.reduce((sum, [, count]) => sum + count, 0);
  const reasons = now.dropped.map(([why, count]) => `${count.toLocaleString("en")} ${why}`).join(", ");
  const bits = rate(8 * now.bytes, was && 8 * was.bytes, elapsed);
  const paused = rate(now.paused_us, was?.paused_us, elapsed);
  const both = (value, before) => [value, rate(value, before, elapsed)];
  return [text(now.port), text(now.to), now.rate_bps / 1e9, now.packets, mega(now.bytes),
    decimal(bits === null ? null : bits / 1e9, 2), bits === null ? null : 100 * bits / now.rate_bps,
    ...both(now.marked, was?.marked), ...both(now.pauses_sent, was?.pauses_sent),
    paused === null ? null : paused / 1e3, ...both(dropped(now), dropped(was)), text(reasons)];
}
