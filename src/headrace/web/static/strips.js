// Window strips: what is under the pointer or the keyboard's cursor, and the way to one record.

export function startStrips() {
  const tooltip = document.getElementById("tooltip");
  const places = new Map(); // by window, so that the cursor outlives a patch

  const stripOf = (event) => event.target.closest?.(".strip");
  const bounds = (strip) => [Number(strip.dataset.first), Number(strip.dataset.last)];

  function offsetAt(strip, x) {
    const box = strip.getBoundingClientRect();
    const [first, last] = bounds(strip);
    const part = Math.min(0.999999, Math.max(0, (x - box.left) / box.width));
    return first + Math.floor(part * (last - first + 1));
  }

  function describe(strip, offset) {
    for (const run of strip.querySelectorAll(".run")) {
      if (Number(run.dataset.first) <= offset && offset <= Number(run.dataset.last)) {
        return `${offset} · ${run.dataset.title}`;
      }
    }
    return String(offset);
  }

  function show(strip, offset, x, y) {
    tooltip.textContent = describe(strip, offset);
    tooltip.hidden = false;
    const width = tooltip.offsetWidth;
    tooltip.style.left = `${Math.max(8, Math.min(x - width / 2, innerWidth - width - 8))}px`;
    tooltip.style.top = `${y + 14}px`;
  }

  function moveCursor(strip, offset) {
    const [first, last] = bounds(strip);
    const place = Math.min(last, Math.max(first, offset));
    places.set(strip.dataset.href, place);
    const cursor = strip.querySelector(".cursor");
    const box = strip.getBoundingClientRect();
    const x = ((place - first + 0.5) / (last - first + 1)) * box.width;
    cursor.hidden = false;
    cursor.style.left = `${x}px`;
    show(strip, place, box.left + x, box.bottom);
  }

  const open = (strip, offset) => location.assign(`${strip.dataset.href}&offset=${offset}`);

  document.addEventListener("pointermove", (event) => {
    const strip = stripOf(event);
    if (strip) show(strip, offsetAt(strip, event.clientX), event.clientX, strip.getBoundingClientRect().bottom);
    else if (!document.activeElement?.classList.contains("strip")) tooltip.hidden = true;
  });
  document.addEventListener("click", (event) => {
    const strip = stripOf(event);
    if (strip) open(strip, offsetAt(strip, event.clientX));
  });
  document.addEventListener("focusin", (event) => {
    const strip = stripOf(event);
    if (strip?.matches(":focus-visible")) moveCursor(strip, places.get(strip.dataset.href) ?? bounds(strip)[0]);
  });
  document.addEventListener("focusout", (event) => {
    const strip = stripOf(event);
    if (!strip) return;
    strip.querySelector(".cursor").hidden = true;
    tooltip.hidden = true;
  });
  document.addEventListener("keydown", (event) => {
    const strip = stripOf(event);
    if (!strip) return;
    const [first, last] = bounds(strip);
    const place = places.get(strip.dataset.href) ?? first;
    const page = Math.max(10, Math.round((last - first) / 20));
    const moves = {
      ArrowLeft: place - 1, ArrowRight: place + 1, PageUp: place - page, PageDown: place + page, Home: first, End: last,
    };
    if (event.key in moves) moveCursor(strip, moves[event.key]);
    else if (event.key === "Enter") open(strip, place);
    else return;
    event.preventDefault();
  });
}
