"use strict";
(() => {
  const holder = document.getElementById("map-data");
  if (!holder) return;
  const map = JSON.parse(holder.textContent);
  const canvas = document.getElementById("map"), slider = document.getElementById("time");
  const play = document.getElementById("play"), said = document.getElementById("said");
  const search = document.getElementById("search"), wanted = document.getElementById("wanted");
  const count = map.nodes.length, hasClasses = map.last[0] >= 0, last = Math.max(0, map.last[0]);
  const changed = new Set(map.changed), moved = new Set(map.moved), faint = canvas.dataset.faint === "yes";
  const place = new Map(map.nodes.map((node, index) => [node, index]));
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let chosen = -1, frame = 0;

  const at = (index, side, time) =>
    map.before[2 * index + side] * (1 - time) + map.after[2 * index + side] * time;

  const draw = () => {
    const size = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    if (!size) return;
    canvas.width = canvas.height = Math.round(size * ratio);
    const pen = canvas.getContext("2d"), look = getComputedStyle(document.documentElement);
    const colour = (name) => look.getPropertyValue(name).trim();
    const classes = Array.from({ length: last + 1 }, (_, k) => colour(`--c${k}`));
    const ink = colour("--ink"), time = slider.value / 100, groups = time < 0.5 ? map.old : map.new;
    const unit = size * 0.94 / 1000, edge = size * 0.03;
    const x = (index) => edge + unit * at(index, 0, time), y = (index) => size - edge - unit * at(index, 1, time);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, size, size);
    const radius = count > 800 ? 2.6 : count > 250 ? 3.6 : 4.6;
    const disc = (k) => {
      pen.fillStyle = classes[Math.min(groups[k], last)];
      pen.beginPath(); pen.arc(x(k), y(k), radius, 0, 7); pen.fill();
    };
    if (map.circle.length) {
      const [cx, cy, r] = map.circle;
      pen.strokeStyle = colour("--muted"); pen.lineWidth = 1; pen.globalAlpha = 0.7; pen.setLineDash([5, 5]);
      pen.beginPath(); pen.arc(edge + unit * cx, size - edge - unit * cy, unit * r, 0, 7); pen.stroke();
      pen.setLineDash([]);
    }
    pen.globalAlpha = faint ? 0.28 : count > 800 ? 0.75 : 0.9;
    for (let k = 0; k < count; k++) if (!changed.has(k)) disc(k);
    pen.globalAlpha = 0.95;
    for (const k of map.changed) disc(k);
    pen.globalAlpha = 1;
    pen.strokeStyle = ink;
    pen.lineWidth = 0.9;
    for (const k of faint ? [] : map.changed) {
      pen.beginPath(); pen.arc(x(k), y(k), radius + 1, 0, 7); pen.stroke();
    }
    if (chosen >= 0) {
      pen.lineWidth = 3;
      pen.beginPath(); pen.arc(x(chosen), y(chosen), radius + 6, 0, 7); pen.stroke();
      pen.fillStyle = ink; pen.font = "600 14px system-ui, sans-serif";
      pen.textAlign = x(chosen) > size / 2 ? "right" : "left";
      pen.strokeStyle = colour("--card"); pen.lineWidth = 4; pen.lineJoin = "round";
      for (const write of ["strokeText", "fillText"]) {
        pen[write](`node ${map.nodes[chosen]}`, x(chosen) + (x(chosen) > size / 2 ? -14 : 14), y(chosen) - 8);
      }
    }
  };

  const EDGES = ["kept", "removed", "added"];
  const count_of = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;

  const told = (index) => {
    const [total, ...rest] = map.around[index], others = [];
    for (let k = 0; k < rest.length; k += 4) others.push(rest.slice(k, k + 4));
    const sure = (side) => (map.sure.length ? ` (${map.sure[2 * index + side]} % sure)` : "");
    const parts = [!hasClasses ? (changed.has(index) ? "its prediction changed" : "its prediction is as before")
      : map.old[index] === map.new[index] ? `class ${map.new[index]} before${sure(0)} and after${sure(1)}`
        : `class ${map.old[index]} before${sure(0)}, ${map.new[index]} after${sure(1)}`];
    parts.push(moved.has(index) ? "its row changed" : "its row did not change");
    const gone = others.filter((other) => other[2] === 1).length, came = others.filter((other) => other[2] === 2).length;
    const rows = others.filter((other) => other[3]).length;
    const notes = [[rows, "changed row"], [gone, "removed edge"], [came, "added edge"]]
      .filter(([number]) => number).map(([number, thing]) => count_of(number, thing));
    parts.push(`${count_of(total, "neighbour")}${notes.length ? ` with ${notes.join(", ")}` : ""}`);
    if (total > others.length) parts.push(`${others.length} of them are drawn`);
    return [`Node ${map.nodes[index]}: ${parts.join("; ")}.`, others];
  };

  const shape = (parent, tag, attributes, text) => {
    const made = document.createElementNS(parent.namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
  };

  const neighbourhood = (index, others) => {
    const drawing = document.getElementById("around");
    drawing.replaceChildren();
    drawing.toggleAttribute("hidden", false);
    const spots = others.map((other, k) => {
      const angle = (2 * Math.PI * k) / others.length - Math.PI / 2;
      return { other, cos: Math.cos(angle), sin: Math.sin(angle) };
    });
    for (const { other, cos, sin } of spots) {
      shape(drawing, "line", { class: `edge ${EDGES[other[2]]}`, x1: 170, y1: 125, x2: 170 + 95 * cos, y2: 125 + 88 * sin });
    }
    for (const { other, cos, sin } of spots) {
      const cx = 170 + 95 * cos, cy = 125 + 88 * sin;
      shape(drawing, "circle", { class: `c${Math.min(other[1], 10)}`, cx, cy, r: 7 });
      if (other[3]) shape(drawing, "circle", { class: "ring", cx, cy, r: 8.5 });
      const anchor = Math.abs(cos) < 0.3 ? "middle" : cos > 0 ? "start" : "end";
      shape(drawing, "text", { x: 170 + 107 * cos, y: 129 + 104 * sin, "text-anchor": anchor }, other[0]);
    }
    shape(drawing, "circle", { class: `c${Math.min(map.new[index], 10)}`, cx: 170, cy: 125, r: 13 });
    if (moved.has(index)) shape(drawing, "circle", { class: "ring", cx: 170, cy: 125, r: 15 });
  };

  const choose = (index, open) => {
    chosen = index;
    const node = map.nodes[index], panel = document.getElementById(`node-${node}`), [text, others] = told(index);
    const hint = panel || !hasClasses ? "" : ` result.explain(${node}) says which part of the change did how much.`;
    said.textContent = text + hint;
    neighbourhood(index, others);
    if (panel && open) panel.open = true;
    draw();
  };

  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect(), time = slider.value / 100;
    const unit = box.width * 0.94 / 1000, edge = box.width * 0.03;
    let best = -1, least = 24 * 24;
    for (let k = 0; k < count; k++) {
      const dx = edge + unit * at(k, 0, time) - (event.clientX - box.left);
      const dy = box.width - edge - unit * at(k, 1, time) - (event.clientY - box.top);
      const known = document.getElementById(`node-${map.nodes[k]}`) ? 0.5 : 1;
      const distance = (dx * dx + dy * dy) * known;
      if (distance < least) { least = distance; best = k; }
    }
    if (best >= 0) choose(best, true);
  });
  search.addEventListener("submit", (event) => {
    event.preventDefault();
    const index = place.get(Number(wanted.value));
    if (index === undefined) said.textContent = `Node ${wanted.value} is not among the ${count} on this map.`;
    else choose(index, true);
  });
  for (const panel of document.querySelectorAll(".nodes details")) {
    panel.addEventListener("toggle", () => {
      const index = place.get(Number(panel.dataset.node));
      if (panel.open && index !== undefined) choose(index, false);
    });
  }
  const say = () => slider.setAttribute("aria-valuetext", `${slider.value} % of the way from before to after`);
  slider.addEventListener("input", () => { say(); draw(); });
  play.addEventListener("click", () => {
    cancelAnimationFrame(frame);
    const goal = Number(slider.value) >= 50 ? 0 : 100;
    if (still.matches) { slider.value = goal; say(); draw(); return; }
    const from = Number(slider.value), start = performance.now();
    const step = (now) => {
      const part = Math.min(1, (now - start) / 900), eased = part * part * (3 - 2 * part);
      slider.value = from + (goal - from) * eased;
      draw();
      if (part < 1) frame = requestAnimationFrame(step); else say();
    };
    frame = requestAnimationFrame(step);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(draw).observe(canvas);
  say();
  draw();
})();
