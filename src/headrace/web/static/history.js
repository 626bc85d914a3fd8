// The time machine: a slider over the times at which something was written. Each place loads the page of that time.
import { morph } from "./morph.js";

export function startHistory() {
  const form = document.querySelector("form.time-machine");
  if (!form) return;
  const times = form.dataset.times.split(",").map(Number);
  const slider = form.querySelector("input[type=range]");
  const region = document.querySelector("[data-region=history]");
  let wanted = null;
  let isBusy = false;

  const nearest = times.reduce((best, time, index) => (time <= Number(form.dataset.at) ? index : best), 0);
  slider.value = String(nearest);
  label();

  function label() {
    slider.setAttribute("aria-valuetext", new Date(times[slider.value]).toISOString());
  }

  async function show() {
    wanted = times[slider.value];
    label();
    if (isBusy) return;
    isBusy = true;
    while (wanted !== null) {
      const address = new URL(location.href);
      address.searchParams.set("at", wanted);
      wanted = null;
      try {
        const page = new DOMParser().parseFromString(await (await fetch(address)).text(), "text/html");
        const found = page.querySelector("[data-region=history]");
        if (found) {
          morph(region, found.innerHTML);
          history.replaceState(null, "", address);
        }
      } catch {
        break; // The next move of the slider tries again.
      }
    }
    isBusy = false;
  }

  slider.addEventListener("input", show);
  for (const button of form.querySelectorAll("[data-step]")) {
    button.addEventListener("click", () => {
      slider.value = String(Number(slider.value) + Number(button.dataset.step));
      show();
    });
  }
}
