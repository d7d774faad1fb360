// Plays recorded runs of the net: one clock for all of them, tokens move along the arcs of the drawing.
(function () {
  "use strict";
  const root = document.currentScript.closest(".petri-player");
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const get = (name) => root.querySelector("[data-control='" + name + "']");
  const TRAVEL = 260; // ms that a token takes along an arc
  const hue = (request) => (request * 47) % 360;

  const runs = data.runs.map((run) => {
    const svg = root.querySelector("#" + run.id);
    return { ...run, svg, moving: svg.querySelector(".moving"), next: 0, counts: new Map(), busy: new Map(), strong: 0, weak: 0, waited: 0, flights: [] };
  });
  const end = Math.max(...runs.map((run) => (run.moves.length ? run.moves[run.moves.length - 1][0] : 0)));
  const slider = get("time");
  slider.max = String(Math.ceil(end / 1000));
  let now = 0, playing = false, last = 0;

  function dots(x, y, count) {
    if (count > 5) return `<text class="count" x="${x}" y="${y + 5}">${count}</text>`;
    let text = "";
    for (let i = 0; i < count; i++) {
      const angle = (2 * Math.PI * i) / count, away = count === 1 ? 0 : 8.5;
      text += `<circle class="token" cx="${(x + away * Math.sin(angle)).toFixed(1)}" cy="${(y - away * Math.cos(angle)).toFixed(1)}" r="4"/>`;
    }
    return text;
  }
  function show(run, place) {
    const group = run.svg.querySelector("#" + run.id + "-p-" + place);
    if (group) group.querySelector(".tokens").innerHTML = dots(+group.dataset.x, +group.dataset.y, Math.max(0, run.counts.get(place) || 0));
  }
  function add(run, place, amount, draws) {
    run.counts.set(place, (run.counts.get(place) || 0) + amount);
    if (draws) show(run, place);
  }
  function busy(run, transition, amount, draws) {
    const count = (run.busy.get(transition) || 0) + amount;
    run.busy.set(transition, count);
    if (draws) run.svg.querySelector("#" + run.id + "-t-" + transition).classList.toggle("busy", count > 0);
  }
  function fly(run, transition, place, isStart, request) {
    const path = run.svg.querySelector("#" + run.id + (isStart ? "-in-" : "-out-") + transition + "-" + place);
    if (!path) return false;
    const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    dot.setAttribute("r", "5");
    dot.setAttribute("fill", request ? `hsl(${hue(request)} 70% 50%)` : "currentColor");
    run.moving.appendChild(dot);
    // Tokens that a firing puts start when those that it takes have come.
    run.flights.push({ dot, path, length: path.getTotalLength(), began: performance.now() + (isStart ? 0 : TRAVEL * 0.9), place, isStart });
    return true;
  }
  function apply(run, move, animated) {
    const [, transition, isStart, request, places] = move;
    busy(run, transition, isStart ? 1 : -1, animated);
    if (!isStart) {
      const name = data.transitions[transition];
      if (name === "ArriveReply") run.strong++;
      if (name === "ArriveWeak") run.weak++;
      if (name === "NotYet") run.waited++;
    }
    for (const [place] of places) {
      if (isStart) {
        add(run, place, -1, animated);
        if (animated) fly(run, transition, place, true, request);
      } else if (!animated || !fly(run, transition, place, false, request)) {
        add(run, place, 1, animated);
      }
    }
  }
  function land(run, time) {
    run.flights = run.flights.filter((it) => {
      const part = (time - it.began) / TRAVEL;
      it.dot.style.display = part < 0 ? "none" : "";
      if (part >= 1) {
        it.dot.remove();
        if (!it.isStart) add(run, it.place, 1, true);
        return false;
      }
      const point = it.path.getPointAtLength(Math.max(0, part) * it.length);
      it.dot.setAttribute("cx", point.x);
      it.dot.setAttribute("cy", point.y);
      return true;
    });
  }
  function seek(time) {
    now = time;
    for (const run of runs) {
      run.flights.forEach((it) => it.dot.remove());
      Object.assign(run, { flights: [], next: 0, strong: 0, weak: 0, waited: 0 });
      run.counts.clear();
      run.busy.clear();
      for (const [place, , tokens] of run.initial) add(run, place, tokens, false);
      while (run.next < run.moves.length && run.moves[run.next][0] <= time) apply(run, run.moves[run.next++], false);
      data.places.forEach((_, place) => show(run, place));
      data.transitions.forEach((_, transition) => busy(run, transition, 0, true));
    }
    label();
  }
  function advance(time) {
    now = time;
    for (const run of runs) while (run.next < run.moves.length && run.moves[run.next][0] <= time) apply(run, run.moves[run.next++], true);
    label();
  }
  function label() {
    slider.value = String(now / 1000);
    get("clock").textContent = (now / 1000).toFixed(0) + " µs";
    for (const run of runs) {
      const held = run.counts.get(data.pending) || 0;
      root.querySelector("[data-counts='" + run.id + "']").textContent =
        `${run.strong + run.weak} replies (${run.weak} weak) · ${held} held by appenders now · ${run.waited} waited so far`;
    }
  }
  function play(is) {
    if (is && now >= end) seek(0);
    playing = is;
    get("play").textContent = is ? "Pause" : "Play";
    last = performance.now();
    if (is) requestAnimationFrame(frame);
  }
  function frame(time) {
    if (playing) {
      // At speed 1 a microsecond takes 20 milliseconds.
      advance(now + ((time - last) / 20) * 1000 * +get("speed").value);
      if (now >= end) play(false);
    }
    last = time;
    runs.forEach((run) => land(run, performance.now()));
    if (playing || runs.some((run) => run.flights.length)) requestAnimationFrame(frame);
  }
  get("play").addEventListener("click", () => play(!playing));
  get("step").addEventListener("click", () => {
    play(false);
    const times = runs.filter((run) => run.next < run.moves.length).map((run) => run.moves[run.next][0]);
    if (times.length) advance(Math.min(...times));
    requestAnimationFrame(frame);
  });
  get("back").addEventListener("click", () => { play(false); seek(0); });
  slider.addEventListener("input", () => { play(false); seek(+slider.value * 1000); });
  const asked = /^#t=(\d+)$/.exec(location.hash);
  seek(asked ? +asked[1] * 1000 : 0);
})();
