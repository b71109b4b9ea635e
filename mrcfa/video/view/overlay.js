"use strict";
// Masks over pictures, with opacity and classes to choose. Of each screen it reads picture, mask, and the
// canvases: `canvas` with its `pen`, and `tint`, which has the mask's size.
const at = id => document.getElementById(id);
const tints = new Uint32Array(256);
let greeting, screens = [], classRows = new Map();

function compose(screen) {
  if (!screen.picture) return;
  const {width, height} = screen.tint, brush = screen.tint.getContext("2d");
  if (screen.layer?.width !== width || screen.layer.height !== height) screen.layer = new ImageData(width, height);
  const pixels = new Uint32Array(screen.layer.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = tints[screen.mask[i]];
  brush.putImageData(screen.layer, 0, 0);
  screen.pen.drawImage(screen.picture, 0, 0);
  screen.pen.drawImage(screen.tint, 0, 0, screen.canvas.width, screen.canvas.height);
}

function classUnder({canvas, tint, mask}, {clientX, clientY}) {
  const {left, top, width, height} = canvas.getBoundingClientRect();
  const x = Math.floor((clientX - left) / width * tint.width), y = Math.floor((clientY - top) / height * tint.height);
  return mask ? readable(greeting.classes[mask[y * tint.width + x]]) : "";
}

// Opacity and visible classes.
function recolour() {
  const alpha = Number(at("alpha").value);
  at("percent").textContent = `${alpha} %`;
  const level = Math.round(255 * alpha / 100);
  tints.fill(0);
  greeting.palette.forEach(([red, green, blue], index) => {
    if (classRows.get(index).box.checked) tints[index] = (level << 24 | blue << 16 | green << 8 | red) >>> 0;
  });
  screens.forEach(compose);
}

function readable(name) { return (name ?? "").replaceAll("_", " "); }

function showClasses() {
  classRows = new Map(greeting.classes.map((name, index) => {
    const row = document.createElement("label"), box = document.createElement("input");
    const [swatch, text, share] = ["i", "span", "small"].map(tag => document.createElement(tag));
    Object.assign(box, {type: "checkbox", checked: greeting.shown.includes(index), onchange: recolour, name: `class-${index}`});
    swatch.style.background = `rgb(${greeting.palette[index].join(" ")})`;
    text.textContent = readable(name);
    row.append(box, swatch, text, share);
    return [index, {row, box, share}];
  }));
  at("seen").replaceChildren();
  at("unseen").replaceChildren(...[...classRows.values()].map(({row}) => row));
  showShares();
}

// A class stays in the upper list after its first appearance, so that rows do not move under a finger.
function showShares() {
  const counts = new Float64Array(256);
  for (const {mask, figure} of screens)
    if (mask && !figure.hidden) for (let i = 0; i < mask.length; i += 7) counts[mask[i]] += 1;
  const total = counts.reduce((sum, count) => sum + count, 0);
  for (const [index, {row, share: text}] of classRows) {
    const share = total ? counts[index] / total : 0;
    if (share >= 0.002 && row.parentNode !== at("seen")) at("seen").append(row);
    text.textContent = share >= 0.0005 ? `${(100 * share).toFixed(1)} %` : "";
  }
  const rest = at("unseen").childElementCount;
  at("rest").hidden = !rest;
  at("rest").querySelector("summary").textContent = `${rest} not seen yet`;
}

function setAll(checked) { classRows.forEach(({box}) => { box.checked = checked; }); recolour(); }

function formatted(value) { return value === null ? "–" : value.toFixed(value < 10 ? 1 : 0); }

function measure(id, value, unit = "", hint = "") {
  const small = document.createElement("small");
  small.textContent = unit && ` ${unit}`;
  at(id).replaceChildren(value, small);
  at(id).title = hint;
}

at("alpha").oninput = recolour;
at("all").onclick = () => setAll(true);
at("none").onclick = () => setAll(false);
