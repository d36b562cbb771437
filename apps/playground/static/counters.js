// The page of counters alone, without the simulator.
const panels = ["devices", "storage", "labs"].map((name) => import(`./${name}.js`));
for (const { panel } of await Promise.all(panels)) panel.watch(document.getElementById("live"));
