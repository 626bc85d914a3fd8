// The live tail of a topic: new records on top, the oldest of many rows leave.

const ROWS_MAX = 500;

export function startTail() {
  const button = document.getElementById("tail");
  if (!button) return;
  const rows = document.getElementById("records");
  const note = document.getElementById("tail-note");
  let events = null;
  let passedOver = 0;

  function say(text) {
    note.textContent = text;
    note.hidden = !text;
  }

  function open() {
    rows.replaceChildren();
    document.getElementById("no-records")?.remove();
    say("Waiting for new records in all partitions…");
    events = new EventSource(`/tail?topic=${encodeURIComponent(button.dataset.topic)}`);
    events.addEventListener("records", (event) => {
      const said = JSON.parse(event.data);
      const made = document.createElement("template");
      made.innerHTML = `<table><tbody>${said.html}</tbody></table>`;
      rows.prepend(...[...made.content.querySelectorAll("tr")].reverse());
      while (rows.children.length > ROWS_MAX) rows.lastElementChild.remove();
      passedOver += said.passed_over;
      say(passedOver ? `Too fast to show all: ${passedOver} records passed over.` : "Newest first.");
    });
    events.addEventListener("trouble", (event) => say(JSON.parse(event.data).error));
    events.onerror = () => {
      const isOver = events.readyState === EventSource.CLOSED; // it was refused: logged out, or too many watch
      say(isOver ? "The tail has ended: reload the page." : "The connection was lost; trying again…");
    };
  }

  button.addEventListener("click", () => {
    const isOn = events === null;
    button.setAttribute("aria-pressed", String(isOn));
    button.textContent = isOn ? "Stop tail" : "Tail";
    if (isOn) {
      open();
    } else {
      events.close();
      events = null;
      say("Stopped.");
    }
  });
  window.addEventListener("pagehide", () => events?.close());
}
