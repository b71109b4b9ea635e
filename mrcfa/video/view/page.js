"use strict";
// Frames come as JPEG with the class of every pixel; opacity and classes are chosen here. The page
// sends nothing but the number of an input that it is ready to draw a frame of.
const WINDOW = 2, FASTEST_MS = 33, SECONDS = 60, SILENT_S = 3, RETRY_MS = 2000;
const at = id => document.getElementById(id);
const tints = new Uint32Array(256);
let socket, hello, screens = [], chosen = null, over = false, seen = new Map();

function connect() {
  const address = new URL("stream" + location.search, location.href);
  address.protocol = address.protocol.replace("http", "ws");
  socket = new WebSocket(address);
  socket.binaryType = "arraybuffer";
  socket.onmessage = ({data}) => {
    if (data instanceof ArrayBuffer) return receive(data);
    const facts = JSON.parse(data);
    facts.classes ? greet(facts) : report(facts);
  };
  socket.onclose = () => {
    if (!over) status("lost", hello ? "connection lost" : "cannot connect");
    setTimeout(connect, RETRY_MS);
  };
}

function greet(facts) {
  const again = hello && JSON.stringify([hello.inputs, hello.classes]) === JSON.stringify([facts.inputs, facts.classes]);
  hello = facts;
  over = false;
  at("about").textContent = facts.backend;
  document.title = `${facts.inputs.join(", ")} · mrcfa`;
  if (!again) {
    at("alpha").value = Math.round(100 * facts.alpha);
    at("screens").replaceChildren();
    screens = facts.inputs.map(screen);
    showInputs();
    showClasses();
  }
  screens.forEach((one, number) => Object.assign(one, {minute: facts.minutes[number], owed: WINDOW}));
  recolour();
  askAll();
}

function screen(name, number, {length}) {
  const figure = document.createElement("figure"), canvas = document.createElement("canvas");
  const caption = document.createElement("figcaption"), word = document.createElement("p");
  const [title, numbers, under] = ["b", "span", "span"].map(tag => document.createElement(tag));
  Object.assign(canvas, {width: 160, height: 90, role: "img", ariaLabel: `${name}, segmented`});
  if (length > 1) {
    const line = title.appendChild(document.createElement("i"));
    line.style.background = colour(number);
  }
  title.append(name);
  under.className = "under";
  word.hidden = true;
  caption.append(title, numbers, under);
  figure.append(canvas, word, caption);
  at("screens").append(figure);
  const one = {figure, canvas, word, numbers, under, minute: [], owed: 0, asked: 0, work: Promise.resolve(),
               pen: canvas.getContext("2d"), tint: document.createElement("canvas"), skipped: 0, drawn: 0};
  canvas.onpointermove = canvas.onpointerdown = event => {
    const {left, top, width, height} = canvas.getBoundingClientRect();
    const x = Math.floor((event.clientX - left) / width * canvas.width);
    const y = Math.floor((event.clientY - top) / height * canvas.height);
    under.textContent = one.mask ? spoken(hello.classes[one.mask[y * canvas.width + x]]) : "";
  };
  canvas.onpointerleave = () => { under.textContent = ""; };
  return one;
}

// Requests: at most WINDOW of an input under way, none for what nobody sees.
function askAll() { screens.forEach((_, number) => ask(number)); }
function ask(number) {
  const one = screens[number];
  if (document.hidden || one.figure.hidden || one.waiting || !one.owed || socket.readyState !== 1) return;
  const wait = one.asked + FASTEST_MS - performance.now();
  if (wait > 0) {
    one.waiting = setTimeout(() => { one.waiting = 0; ask(number); }, wait);
    return;
  }
  one.asked = performance.now();
  one.owed -= 1;
  socket.send(String(number));
  ask(number);
}

function receive(data) {
  const bytes = new Uint8Array(data), end = bytes.indexOf(10);
  const facts = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  const one = screens[facts.input], jpeg = end + 1 + facts.jpeg;
  one.work = one.work.then(async () => {
    const picture = await createImageBitmap(new Blob([bytes.subarray(end + 1, jpeg)], {type: "image/jpeg"}));
    const inflated = new Blob([bytes.subarray(jpeg)]).stream().pipeThrough(new DecompressionStream("deflate"));
    one.mask = new Uint8Array(await new Response(inflated).arrayBuffer());
    one.picture?.close();
    one.picture = picture;
    one.skipped = facts.skipped;
    for (const canvas of [one.canvas, one.tint])
      if (canvas.width !== facts.width || canvas.height !== facts.height)
        Object.assign(canvas, {width: facts.width, height: facts.height});
    compose(one);
    one.drawn = facts.number;
    one.canvas.dataset.number = facts.number;
  }).catch(console.error).then(() => {
    one.owed = Math.min(one.owed + 1, WINDOW);
    ask(facts.input);
  });
}

function compose(one) {
  if (!one.picture) return;
  const {width, height} = one.canvas, brush = one.tint.getContext("2d");
  if (one.layer?.width !== width || one.layer.height !== height) one.layer = new ImageData(width, height);
  const pixels = new Uint32Array(one.layer.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = tints[one.mask[i]];
  brush.putImageData(one.layer, 0, 0);
  one.pen.drawImage(one.picture, 0, 0);
  one.pen.drawImage(one.tint, 0, 0);
}

// What is shown: opacity and classes.
function recolour() {
  const alpha = Number(at("alpha").value);
  at("percent").textContent = `${alpha} %`;
  const level = Math.round(255 * alpha / 100);
  tints.fill(0);
  hello.palette.forEach(([red, green, blue], index) => {
    if (seen.get(index).box.checked) tints[index] = (level << 24 | blue << 16 | green << 8 | red) >>> 0;
  });
  screens.forEach(compose);
}

function spoken(name) { return (name ?? "").replaceAll("_", " "); }

function showClasses() {
  seen = new Map(hello.classes.map((name, index) => {
    const row = document.createElement("label"), box = document.createElement("input");
    const [swatch, text, share] = ["i", "span", "small"].map(tag => document.createElement(tag));
    Object.assign(box, {type: "checkbox", checked: hello.shown.includes(index), onchange: recolour, name: `class-${index}`});
    swatch.style.background = `rgb(${hello.palette[index].join(" ")})`;
    text.textContent = spoken(name);
    row.append(box, swatch, text, share);
    return [index, {row, box, share}];
  }));
  at("seen").replaceChildren();
  at("unseen").replaceChildren(...[...seen.values()].map(each => each.row));
  showShares();
}

// A class that was in a picture once stays in the upper list, so that nothing moves under a finger.
function showShares() {
  const counts = new Float64Array(256);
  for (const one of screens)
    if (one.mask && !one.figure.hidden) for (let i = 0; i < one.mask.length; i += 7) counts[one.mask[i]] += 1;
  const total = counts.reduce((sum, count) => sum + count, 0);
  for (const [index, each] of seen) {
    const share = total ? counts[index] / total : 0;
    if (share >= 0.002 && each.row.parentNode !== at("seen")) at("seen").append(each.row);
    each.share.textContent = share >= 0.0005 ? `${(100 * share).toFixed(1)} %` : "";
  }
  const rest = at("unseen").childElementCount;
  at("rest").hidden = !rest;
  at("rest").querySelector("summary").textContent = `${rest} not seen yet`;
}

function setAll(checked) { seen.forEach(each => { each.box.checked = checked; }); recolour(); }

function showInputs() {
  at("inputs").hidden = screens.length < 2;
  chosen = null;
  const choices = [["all", null], ...hello.inputs.map((name, number) => [name, number])];
  at("inputs").replaceChildren(...choices.map(([name, number]) => {
    const button = document.createElement("button");
    Object.assign(button, {type: "button", textContent: name, onclick: () => choose(number)});
    return button;
  }));
  choose(null);
}

function choose(number) {
  chosen = number;
  [...at("inputs").children].forEach((button, place) =>
    button.setAttribute("aria-pressed", String(place === (number === null ? 0 : number + 1))));
  screens.forEach((one, other) => { one.figure.hidden = number !== null && other !== number; });
  showNumbers();
  askAll();
}

// How it fares.
function status(kind, text) {
  at("status").className = `pill ${kind}`;
  at("status").textContent = text;
}

function report(facts) {
  over = facts.ended;
  facts.inputs.forEach((each, number) => {
    const one = screens[number];
    one.facts = each;
    if (each.last) one.minute = [...one.minute, each.last].slice(-SECONDS);
  });
  const heat = facts.temperature;
  at("heat").hidden = !heat;
  if (heat) measure("temperature", heat.celsius.toFixed(0), "°C", heat.sensor);
  at("viewers").textContent = facts.viewers > 1 ? `· ${facts.viewers} viewers` : "";
  showNumbers();
  showShares();
}

function word(one) {
  const {state, said, silent, frames} = one.facts;
  if (over || state === "ended")
    return ["ended", `the ${over ? "run" : "input"} has ended${said ? `: ${said}` : ""}`];
  if (state === "lost") return ["lost", `${said}; trying again`];
  if (frames && silent > SILENT_S) return ["lost", `no frame for ${silent.toFixed(0)} s`];
  return [frames ? "live" : "", ""];
}

function showNumbers() {
  const there = screens.filter(one => one.facts && !one.figure.hidden);
  if (!there.length) return;
  const words = there.map(one => {
    const [kind, text] = word(one), {rate, latency} = recent(one);
    one.word.hidden = !text;
    one.word.className = `word ${kind}`;
    one.word.textContent = text;
    one.numbers.textContent = `frame ${one.facts.frames}` + (screens.length > 1 ? ` · ${shown(rate)} frames/s · ${shown(latency)} ms` : "")
      + (one.skipped ? ` · ${one.skipped} not sent to this page` : "");
    return kind;
  });
  const lost = words.filter(kind => kind === "lost").length;
  if (over) status("", "ended");
  else if (lost) status("lost", lost < words.length ? `${lost} of ${words.length} lost` : "lost");
  else status(words.includes("live") ? "live" : "", words.includes("live") ? "live" : words.includes("ended") ? "ended" : "waiting");
  const recents = there.map(recent), latencies = recents.map(each => each.latency).filter(each => each !== null);
  measure("rate", shown(recents.reduce((sum, each) => sum + each.rate, 0)), "/s");
  measure("latency", shown(latencies.length ? Math.max(...latencies) : null), "ms");
  measure("dropped", COMPACT.format(there.reduce((sum, one) => sum + one.facts.dropped, 0)));
  chart("rates", "rate");
  chart("latencies", "latency");
  chart("drops", "dropped");
  at("drops").hidden = !there.some(one => one.facts.dropped);
}

function recent(one) {
  const last = one.minute.slice(-5), waits = last.map(point => point.latency).filter(wait => wait !== null);
  const mean = values => values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  return {rate: mean(last.map(point => point.rate)) ?? 0, latency: mean(waits)};
}

function shown(value) { return value === null ? "–" : value.toFixed(value < 10 ? 1 : 0); }

const COMPACT = new Intl.NumberFormat("en", {notation: "compact"});
function measure(id, value, unit = "", hint = "") {
  const small = document.createElement("small");
  small.textContent = unit && ` ${unit}`;
  at(id).replaceChildren(value, small);
  at(id).title = hint;
}

function colour(number) { return `var(--s${number % 6})`; }

const SVG = "http://www.w3.org/2000/svg";
function chart(id, key) {
  const svg = at(id).querySelector("svg") ?? at(id).appendChild(document.createElementNS(SVG, "svg"));
  const lines = screens.map((one, number) => one.figure.hidden ? [] : one.minute.map(point => point[key])).map(
    values => values.map((value, place) => [SECONDS - values.length + place, value]));
  const most = Math.max(1, ...lines.flat().map(([, value]) => value ?? 0));
  svg.setAttribute("viewBox", `0 0 ${SECONDS - 1} 40`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.replaceChildren(...lines.map((points, number) => {
    const path = document.createElementNS(SVG, "path");
    let pen = "M";
    path.setAttribute("d", points.map(([x, value]) => {
      const step = value === null ? "" : `${pen}${x} ${(38.5 - 36 * value / most).toFixed(2)}`;
      pen = value === null ? "M" : "L";
      return step;
    }).join(""));
    path.style.stroke = colour(number);
    return path;
  }));
  at(id).querySelector(".most").textContent = `last minute, up to ${shown(most)}`;
}

at("alpha").oninput = recolour;
at("all").onclick = () => setAll(true);
at("none").onclick = () => setAll(false);
document.onvisibilitychange = askAll;
connect();
