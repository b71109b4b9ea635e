"use strict";
// Frames arrive as JPEG with the class of every pixel; the page applies opacity and classes. It sends
// only the number of an input when it is ready to draw a frame of it.
const WINDOW = 2, FASTEST_MS = 33, SECONDS = 60, SILENT_S = 3, RETRY_MS = 2000;
const COMPACT = new Intl.NumberFormat("en", {notation: "compact"});
let socket, ended = false;

function connect() {
  const address = new URL("stream" + location.search, location.href);
  address.protocol = address.protocol.replace("http", "ws");
  socket = new WebSocket(address);
  socket.binaryType = "arraybuffer";
  socket.onmessage = ({data}) => {
    if (data instanceof ArrayBuffer) return receive(data);
    const facts = JSON.parse(data);
    facts.classes ? start(facts) : update(facts);
  };
  socket.onclose = () => {
    if (!ended) status("lost", greeting ? "connection lost" : "cannot connect");
    setTimeout(connect, RETRY_MS);
  };
}

function start(facts) {
  const same = greeting && JSON.stringify([greeting.inputs, greeting.classes]) === JSON.stringify([facts.inputs, facts.classes]);
  greeting = facts;
  ended = false;
  at("about").textContent = facts.backend;
  document.title = `${facts.inputs.join(", ")} · mrcfa`;
  if (!same) {
    at("alpha").value = Math.round(100 * facts.alpha);
    at("screens").replaceChildren();
    screens = facts.inputs.map(addScreen);
    showInputs();
    showClasses();
  }
  screens.forEach((screen, number) => Object.assign(screen, {minute: facts.minutes[number], credit: WINDOW}));
  recolour();
  requestAll();
}

function addScreen(name, number, {length}) {
  const figure = document.createElement("figure"), canvas = document.createElement("canvas");
  const caption = document.createElement("figcaption"), notice = document.createElement("p");
  const [title, numbers, under] = ["b", "span", "span"].map(tag => document.createElement(tag));
  Object.assign(canvas, {width: 160, height: 90, role: "img", ariaLabel: `${name}, segmented`});
  if (length > 1) {
    const line = title.appendChild(document.createElement("i"));
    line.style.background = colour(number);
  }
  title.append(name);
  under.className = "under";
  notice.hidden = true;
  caption.append(title, numbers, under);
  figure.append(canvas, notice, caption);
  at("screens").append(figure);
  const screen = {figure, canvas, notice, numbers, under, minute: [], credit: 0, requested: 0, work: Promise.resolve(),
                  pen: canvas.getContext("2d"), tint: document.createElement("canvas"), skipped: 0, drawn: 0};
  canvas.onpointermove = canvas.onpointerdown = event => { under.textContent = classUnder(screen, event); };
  canvas.onpointerleave = () => { under.textContent = ""; };
  return screen;
}

// Requests: at most WINDOW open ones per input, none for a hidden page or input.
function requestAll() { screens.forEach((_, number) => request(number)); }
function request(number) {
  const screen = screens[number];
  if (document.hidden || screen.figure.hidden || screen.timer || !screen.credit || socket.readyState !== 1) return;
  const wait = screen.requested + FASTEST_MS - performance.now();
  if (wait > 0) {
    screen.timer = setTimeout(() => { screen.timer = 0; request(number); }, wait);
    return;
  }
  screen.requested = performance.now();
  screen.credit -= 1;
  socket.send(String(number));
  request(number);
}

function receive(data) {
  const bytes = new Uint8Array(data), end = bytes.indexOf(10);
  const facts = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  const screen = screens[facts.input], jpeg = end + 1 + facts.jpeg;
  screen.work = screen.work.then(async () => {
    const picture = await createImageBitmap(new Blob([bytes.subarray(end + 1, jpeg)], {type: "image/jpeg"}));
    const inflated = new Blob([bytes.subarray(jpeg)]).stream().pipeThrough(new DecompressionStream("deflate"));
    screen.mask = new Uint8Array(await new Response(inflated).arrayBuffer());
    screen.picture?.close();
    screen.picture = picture;
    screen.skipped = facts.skipped;
    for (const canvas of [screen.canvas, screen.tint])
      if (canvas.width !== facts.width || canvas.height !== facts.height)
        Object.assign(canvas, {width: facts.width, height: facts.height});
    compose(screen);
    screen.drawn = facts.number;
    screen.canvas.dataset.number = facts.number;
  }).catch(console.error).then(() => {
    screen.credit = Math.min(screen.credit + 1, WINDOW);
    request(facts.input);
  });
}

function showInputs() {
  at("inputs").hidden = screens.length < 2;
  const choices = [["all", null], ...greeting.inputs.map((name, number) => [name, number])];
  at("inputs").replaceChildren(...choices.map(([name, number]) => {
    const button = document.createElement("button");
    Object.assign(button, {type: "button", textContent: name, onclick: () => choose(number)});
    return button;
  }));
  choose(null);
}

function choose(number) {
  [...at("inputs").children].forEach((button, place) =>
    button.setAttribute("aria-pressed", String(place === (number === null ? 0 : number + 1))));
  screens.forEach(({figure}, other) => { figure.hidden = number !== null && other !== number; });
  showNumbers();
  requestAll();
}

// Status and statistics.
function status(kind, text) {
  at("status").className = `pill ${kind}`;
  at("status").textContent = text;
}

function update(facts) {
  ended = facts.ended;
  facts.inputs.forEach((input, number) => {
    const screen = screens[number];
    screen.facts = input;
    if (input.last) screen.minute = [...screen.minute, input.last].slice(-SECONDS);
  });
  const heat = facts.temperature;
  at("heat").hidden = !heat;
  if (heat) measure("temperature", heat.celsius.toFixed(0), "°C", heat.sensor);
  at("viewers").textContent = facts.viewers > 1 ? `· ${facts.viewers} viewers` : "";
  showNumbers();
  showShares();
}

// The state of an input, and the notice below its picture.
function stateOf({facts: {state, message, silent, frames}}) {
  if (ended || state === "ended")
    return ["ended", `the ${ended ? "run" : "input"} has ended${message ? `: ${message}` : ""}`];
  if (state === "lost") return ["lost", `${message}; reconnecting`];
  if (frames && silent > SILENT_S) return ["lost", `no frame for ${silent.toFixed(0)} s`];
  return [frames ? "live" : "", ""];
}

function showNumbers() {
  const visible = screens.filter(({facts, figure}) => facts && !figure.hidden);
  if (!visible.length) return;
  const states = visible.map(screen => {
    const [state, text] = stateOf(screen), {rate, latency} = recent(screen);
    screen.notice.hidden = !text;
    screen.notice.className = `notice ${state}`;
    screen.notice.textContent = text;
    screen.numbers.textContent = `frame ${screen.facts.frames}`
      + (screens.length > 1 ? ` · ${formatted(rate)} frames/s · ${formatted(latency)} ms` : "")
      + (screen.skipped ? ` · ${screen.skipped} not sent to this page` : "");
    return state;
  });
  const lost = states.filter(state => state === "lost").length;
  if (ended) status("", "ended");
  else if (lost) status("lost", lost < states.length ? `${lost} of ${states.length} lost` : "lost");
  else status(states.includes("live") ? "live" : "", states.includes("live") ? "live" : states.includes("ended") ? "ended" : "waiting");
  const means = visible.map(recent), latencies = means.map(({latency}) => latency).filter(latency => latency !== null);
  measure("rate", formatted(means.reduce((sum, {rate}) => sum + rate, 0)), "/s");
  measure("latency", formatted(latencies.length ? Math.max(...latencies) : null), "ms");
  measure("dropped", COMPACT.format(visible.reduce((sum, {facts}) => sum + facts.dropped, 0)));
  chart("rates", "rate");
  chart("latencies", "latency");
  chart("drops", "dropped");
  at("drops").hidden = !visible.some(({facts}) => facts.dropped);
}

function recent({minute}) {
  const last = minute.slice(-5), latencies = last.map(point => point.latency).filter(latency => latency !== null);
  const mean = values => values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  return {rate: mean(last.map(point => point.rate)) ?? 0, latency: mean(latencies)};
}

function colour(number) { return `var(--s${number % 6})`; }

const SVG = "http://www.w3.org/2000/svg";
function chart(id, key) {
  const svg = at(id).querySelector("svg") ?? at(id).appendChild(document.createElementNS(SVG, "svg"));
  const lines = screens.map(({figure, minute}) => figure.hidden ? [] : minute.map(point => point[key])).map(
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
  at(id).querySelector(".most").textContent = `last minute, up to ${formatted(most)}`;
}

document.onvisibilitychange = requestAll;
connect();
