// Storage servers of the user who serves the page: NVMe targets, SMB gateways and dials.
import { counted, decimal, mega, more, Panel, rate, seconds, text } from "./live.js";

const NAMESPACES = [text("subsystem"), "namespace", "reads", "per s", "MB", "MB/s", "mean \u00b5s", "writes",
  "per s", "MB", "MB/s", "mean \u00b5s", "others", "in progress", "errors"];
const HOSTS = [text("host"), text("subsystem"), "queues", "reads", "per s", "mean \u00b5s", "writes", "per s",
  "mean \u00b5s", "in progress"];
const CLIENTS = [text("client"), text("session"), "reads", "per s", "MB", "MB/s", "writes", "per s", "MB",
  "MB/s"];

export const panel = new Panel("Storage servers", "api/storage", describe);

function describe({ servers, problems }, before) {
  const blocks = servers.map((server) => {
    const was = before?.servers.find((one) => one.socket === server.socket && one.kind === server.kind
      && one.at_ns < server.at_ns);
    return server.kind === "nvme" ? target(server, was) : gateway(server, was);
  });
  return { text: servers.length ? "" : "None runs: rockery serve nvme --memory 1G", problems, blocks };
}

function target(now, was) {
  const elapsed = seconds(now, was);
  const namespaces = now.namespaces.map((it) => {
    const before = was?.namespaces.find(({ subsystem, id }) => subsystem === it.subsystem && id === it.id);
    const [reads, writes, others] = it.commands;
    const [read, write] = [0, 1].map((at) => commands(it, before, at, elapsed));
    const bytes = (name) => [mega(it[name]), mega(rate(it[name], before?.[name], elapsed))];
    return [text(it.subsystem), it.id, reads.count, read.rate, ...bytes("read_bytes"), read.mean,
      writes.count, write.rate, ...bytes("written_bytes"), write.mean, others.count,
      depth(it, before, elapsed), it.errors];
  });
  const hosts = now.hosts.map((it) => {
    const same = ({ subsystem, host }) => subsystem === it.subsystem && host === it.host;
    const before = was?.hosts.find(same);
    const [read, write] = [0, 1].map((at) => commands(it, before, at, elapsed));
    return [text(it.host), text(it.subsystem), it.queues, it.commands[0].count, read.rate, read.mean,
      it.commands[1].count, write.rate, write.mean, depth(it, before, elapsed)];
  });
  return {
    key: now.socket,
    title: `NVMe target at ${now.socket}`,
    lines: [`${counted(now.connections, "connection", "connections")}, `
      + counted(now.controllers, "controller", "controllers"),
      ...more(now.namespaces.length, now.namespaces_total, "namespaces"),
      ...more(now.hosts.length, now.hosts_total, "hosts")],
    tables: [{ label: "Namespaces", titles: NAMESPACES, rows: namespaces },
      ...(hosts.length ? [{ label: "Hosts", titles: HOSTS, rows: hosts }] : [])],
  };
}

// Commands per second of a class, and what one took on average, in microseconds.
function commands(now, before, at, elapsed) {
  const [is, was] = [now.commands[at], before?.commands[at]];
  const per = rate(is.count, was?.count, elapsed);
  const took = rate(is.sum_ns, was?.sum_ns, elapsed);
  return { rate: per, mean: decimal(per && took !== null ? took / per / 1000 : null) };
}

// The mean number of commands in progress, by Little's law: what all commands took, over the time.
function depth(now, before, elapsed) {
  const sum = (it) => it?.commands.reduce((all, { sum_ns }) => all + sum_ns, 0);
  const grows = rate(sum(now), sum(before), elapsed);
  return decimal(grows === null ? null : grows / 1e9);
}

function gateway(now, was) {
  const elapsed = seconds(now, was);
  const cells = (it, before) => ["read", "write"].flatMap((way) => {
    const [is, earlier] = [it[way], before?.[way]];
    return [is.requests, rate(is.requests, earlier?.requests, elapsed), mega(is.bytes),
      mega(rate(is.bytes, earlier?.bytes, elapsed))];
  });
  const all = [text("all"), text(""), ...cells(now, was)];
  const rows = now.clients.map((it) => {
    const before = was?.clients.find(({ id }) => id === it.id);
    return [text(it.client), text(it.has_session ? "yes" : "no"), ...cells(it, before)];
  });
  return {
    key: now.socket,
    title: `SMB ${now.kind} at ${now.socket}`,
    lines: [`${counted(now.clients_total, "connection", "connections")}, ${now.refused} refused, `
      + `${now.ended} ended`,
      ...more(now.clients.length, now.clients_total, "clients")],
    tables: [{ label: "SMB clients", titles: CLIENTS, rows: [all, ...rows] }],
  };
}
