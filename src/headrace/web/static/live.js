// Keeps the page's regions as they are on the server, by server-sent events. `headrace:tick` tells of new samples.
import { morph } from "./morph.js";
import { printable } from "./text.js";

export function startLive() {
  const address = document.body.dataset.live;
  if (!address) return;
  const pulse = document.getElementById("pulse");
  const pause = document.getElementById("pause");
  let events = null;

  function say(text, kind) {
    pulse.textContent = text;
    pulse.className = `pulse ${kind}`;
  }

  function open() {
    if (events) return;
    events = new EventSource(address);
    events.addEventListener("patch", (event) => {
      for (const [name, html] of Object.entries(JSON.parse(event.data))) {
        const region = document.querySelector(`[data-region="${name}"]`);
        if (region) morph(region, html);
      }
      trouble("");
      if (pulse.dataset.kind === "live") {
        pulse.classList.add("beat");
        setTimeout(() => pulse.classList.remove("beat"), 650);
      }
    });
    events.addEventListener("pulse", (event) => {
      const { kind, text } = JSON.parse(event.data);
      pulse.dataset.kind = kind;
      say(text, kind === "live" ? "" : kind);
    });
    events.addEventListener("tick", () => document.dispatchEvent(new CustomEvent("headrace:tick")));
    events.addEventListener("trouble", (event) => trouble(JSON.parse(event.data).error));
    events.onerror = () => {
      const isOver = events.readyState === EventSource.CLOSED; // it was refused: logged out, or too many watch
      say(isOver ? "stopped: reload the page" : "reconnecting…", "away");
    };
  }

  function close() {
    events?.close();
    events = null;
  }

  let isPaused = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Resume" : "Pause";
    if (isPaused) {
      close();
      say("paused", "paused");
    } else {
      open();
    }
  });
  // A browser keeps six connections to a host: tabs that nobody sees must not hold one each.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (!isPaused) open();
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => {
    if (event.persisted && !isPaused) open();
  });
  open();
}

function trouble(text) {
  const box = document.getElementById("trouble");
  box.textContent = printable(text);
  box.hidden = !text;
}
