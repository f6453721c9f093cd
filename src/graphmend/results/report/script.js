"use strict";
(() => {
  const holder = document.getElementById("map-data");
  if (!holder) return;
  const map = JSON.parse(holder.textContent);
  const canvas = document.getElementById("map"), slider = document.getElementById("time");
  const play = document.getElementById("play"), said = document.getElementById("said");
  const search = document.getElementById("search"), wanted = document.getElementById("wanted");
  const count = map.nodes.length, hasClasses = map.last[0] >= 0, last = Math.max(0, map.last[0]);
  const changed = new Set(map.changed);
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
    for (let k = 0; k < count; k++) {
      pen.globalAlpha = count > 800 ? 0.75 : 0.9;
      pen.fillStyle = classes[Math.min(groups[k], last)];
      pen.beginPath(); pen.arc(x(k), y(k), radius, 0, 7); pen.fill();
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = ink;
    for (let k = 0; k < count; k++) {
      if (!changed.has(k)) continue;
      pen.lineWidth = 0.9;
      pen.beginPath(); pen.arc(x(k), y(k), radius + 1, 0, 7); pen.stroke();
    }
    if (chosen >= 0) {
      pen.lineWidth = 3;
      pen.beginPath(); pen.arc(x(chosen), y(chosen), radius + 6, 0, 7); pen.stroke();
      pen.fillStyle = ink; pen.font = "600 14px system-ui, sans-serif";
      pen.textAlign = x(chosen) > size / 2 ? "right" : "left";
      pen.fillText(`node ${map.nodes[chosen]}`, x(chosen) + (x(chosen) > size / 2 ? -14 : 14), y(chosen) - 8);
    }
  };

  const choose = (index, open) => {
    chosen = index;
    const node = map.nodes[index], panel = document.getElementById(`node-${node}`);
    const move = !hasClasses
      ? (changed.has(index) ? "its prediction changed" : "drawn as before and after") : map.old[index] === map.new[index]
      ? `class ${map.new[index]} before and after` : `class ${map.old[index]} before, ${map.new[index]} after`;
    const hint = panel || !hasClasses ? "" : `; result.explain(${node}) says more`;
    said.textContent = `Node ${node}: ${move}${hint}.`;
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
