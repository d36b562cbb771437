// Colours the links of the report's picture by their load at one moment.
const input = document.getElementById("moment");
const output = document.getElementById("moment-text");

let lines = [];
let times = [];
let loads = [];

// From grey over green and orange to red, as the picture of the whole run has it.
const colour = (part) => (part < 0.01 ? "#9994" : `hsl(${130 - 130 * part} 75% 42%)`);

// Takes the picture that the report shows now.
export function attach(report, newTimes, newLoads) {
  [times, loads] = [newTimes, newLoads];
  lines = [...report.querySelectorAll("line[data-link]")].map((line) => ({
    line, link: Number(line.dataset.link), stroke: line.getAttribute("stroke"),
    width: line.getAttribute("stroke-width"),
  }));
  document.getElementById("time").hidden = times.length < 2 || lines.length === 0;
  input.max = times.length - 1;
  input.value = -1;
  draw();
}

function draw() {
  const moment = Number(input.value);
  output.textContent = moment < 0 ? "whole run" : `${times[moment].toFixed(1)} µs`;
  input.setAttribute("aria-valuetext", output.textContent);
  for (const { line, link, stroke, width } of lines) {
    const load = (loads[link]?.[moment] ?? 0) / 100;
    line.setAttribute("stroke", moment < 0 ? stroke : colour(load));
    line.setAttribute("stroke-width", moment < 0 ? width : 1 + 2 * load);
  }
}

input.addEventListener("input", draw);
