// Dialogs that change something. Those with a plan show first what would happen, and do it on the second press.

import { printable } from "./text.js";

export function startActions() {
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-open]");
    if (opener) openDialog(opener);
    if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
  });
  for (const form of document.querySelectorAll("form[data-action]")) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      submit(form);
    });
    form.addEventListener("input", () => resetPlan(form));
    form.querySelector("select[name=to]")?.addEventListener("change", () => showFields(form));
  }
  for (const form of document.querySelectorAll("form.browse")) form.addEventListener("submit", () => addTime(form));
}

function openDialog(opener) {
  const dialog = document.getElementById(opener.dataset.open);
  const form = dialog.querySelector("form");
  if ("cause" in opener.dataset) {
    form.dataset.cause = opener.dataset.cause;
    dialog.querySelector("[data-cause-name]").textContent = opener.dataset.causeText;
  }
  if ("id" in opener.dataset) {
    form.dataset.id = opener.dataset.id;
    dialog.querySelector("[data-id-name]").textContent = printable(opener.dataset.id);
  }
  resetPlan(form);
  dialog.showModal();
}

function resetPlan(form) {
  const button = form.querySelector("[type=submit]");
  form.dataset.planned = "";
  form.querySelector(".result").replaceChildren();
  if (button.dataset.plan) button.textContent = button.dataset.plan;
  button.disabled = false;
}

function showFields(form) {
  for (const field of form.querySelectorAll("[data-when]")) field.hidden = field.dataset.when !== form.elements.to.value;
}

async function submit(form) {
  const button = form.querySelector("[type=submit]");
  const wanted = WANTED[form.dataset.kind](form);
  if (wanted === null) return;
  const hasPlan = "plan" in button.dataset;
  const isPlan = hasPlan && !form.dataset.planned;
  if (form.dataset.kind === "config" && isPlan) {
    planned(form, button, changesTable(wanted.changes, form));
    return;
  }
  if (hasPlan && form.dataset.kind !== "config") wanted.dry_run = isPlan;
  button.disabled = true;
  try {
    const answer = await fetch(form.dataset.action, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "x-csrf-token": document.querySelector("meta[name=csrf-token]").content,
      },
      body: JSON.stringify(wanted),
    });
    const said = await answer.json();
    if (!answer.ok) show(form, notice("trouble", said.error));
    else if (isPlan) planned(form, button, SHOWN[form.dataset.kind](said));
    else finished(form, said);
  } catch {
    show(form, notice("trouble", "The dashboard does not respond. The result is unknown. Reload the page to check."));
  }
  if (!form.dataset.done) button.disabled = false;
}

function planned(form, button, shown) {
  const { node, isPossible } = shown;
  show(form, node);
  if (!isPossible) return;
  form.dataset.planned = "yes";
  button.textContent = button.dataset.confirm;
}

function finished(form, said) {
  const text = said.message ?? DONE[form.dataset.kind](said);
  show(form, notice("good", text), ...(said.errors ?? []).map((error) => notice("trouble", error)));
  form.dataset.done = "yes";
  form.querySelector("[data-close]").textContent = "Close";
  form.closest("dialog").addEventListener("close", () => {
    if (form.dataset.kind === "delete") location.assign("/groups");
    else if (form.dataset.kind === "deleteTopic") location.assign("/topics");
    else location.reload();
  }, { once: true });
}

const WANTED = {
  reset(form) {
    const { to, topic, time, partition, offset } = form.elements;
    const wanted = { group: form.dataset.group, to: to.value };
    if (topic.value) wanted.topic = topic.value;
    if (to.value === "time") {
      if (!time.value) return missing(form, "Choose a time first.");
      wanted.time = utc(time.value);
    }
    if (to.value === "offset") {
      if (!topic.value) return missing(form, "Choose a topic first.");
      wanted.partition = Number(partition.value);
      wanted.offset = Number(offset.value);
    }
    return wanted;
  },
  delete: (form) => ({ group: form.dataset.group }),
  config(form) {
    const changes = {};
    for (const field of form.querySelectorAll("input[data-before]")) {
      if (field.value !== field.dataset.before) changes[field.name] = field.value === "" ? null : field.value;
    }
    if (!Object.keys(changes).length) return missing(form, "Nothing is changed yet.");
    return { group: form.dataset.group, changes };
  },
  release: ({ dataset }) => ({
    group: dataset.group, topic: dataset.topic, partition: Number(dataset.partition), offset: Number(dataset.offset),
  }),
  cancelScheduled: ({ dataset }) => ({ group: dataset.group, id: dataset.id }),
  createTopic({ elements }) {
    const wanted = { topic: elements.topic.value.trim(), partitions: Number(elements.partitions.value) };
    if (elements.retention.value) wanted.configs = { "retention.ms": String(elements.retention.value * 3600000) };
    return wanted;
  },
  deleteTopic: ({ dataset, elements }) => ({ topic: dataset.topic, confirm: elements.confirm.value }),
  redriveOne({ dataset, elements }) {
    const wanted = place(dataset);
    wanted.again = Boolean(dataset.again);
    wanted.dry_run = false;
    if (elements.value) wanted.value = elements.value.value;
    return wanted;
  },
  discardOne: ({ dataset }) => ({ ...place(dataset), dry_run: false }),
  discard: ({ dataset }) => (dataset.cause ? { topic: dataset.topic, cause: dataset.cause } : { topic: dataset.topic }),
  redrive(form) {
    const wanted = { topic: form.dataset.topic, again: form.elements.again.checked };
    if (form.dataset.cause) wanted.cause = form.dataset.cause;
    if (form.elements.limit.value) wanted.limit = Number(form.elements.limit.value);
    return wanted;
  },
};

function place({ topic, partition, offset }) {
  return { topic, partition: Number(partition), offset: Number(offset) };
}

const SHOWN = {
  discard: (said) => ({
    node: notice("good", said.chosen ? `${said.chosen} letter(s) would be discarded.` : "There is nothing to discard: no letter of that kind waits."),
    isPossible: said.chosen > 0,
  }),
  reset: (said) => ({
    node: said.changes.length
      ? table(["Partition", "From", "To"], said.changes.map((one) => [`${one.topic}-${one.partition}`, one.before ?? "–", one.after]))
      : notice("good", "The group has no offsets to move."),
    isPossible: said.changes.length > 0,
  }),
  redrive: (said) => ({
    node: said.chosen
      ? table(["To topic", "Letters"], Object.entries(said.targets))
      : notice("good", "There is nothing to send: no letter of that kind waits."),
    isPossible: said.chosen > 0,
  }),
};

const DONE = {
  reset: (said) => `${said.changes.length} partition(s) moved.`,
  discard: (said) => `${said.discarded} discarded.`,
  discardOne: (said) => (said.discarded ? "Discarded." : "Another redrive has taken it."),
  redriveOne: (said) => DONE.redrive(said),
  redrive(said) {
    const parts = [`${said.redriven} sent back`];
    if (said.gone) parts.push(`${said.gone} gone: neither a copy nor the topic has the record`);
    if (said.refused) parts.push(`${said.refused} refused`);
    if (said.uncertain) parts.push(`${said.uncertain} uncertain`);
    if (said.taken) parts.push(`${said.taken} taken by another redrive`);
    return `${parts.join(", ")}.`;
  },
};

function changesTable(changes, form) {
  const before = (name) => form.elements[name].dataset.before || "(default)";
  const rows = Object.entries(changes).map(([name, value]) => [name, before(name), value ?? "(default)"]);
  return { node: table(["Config", "From", "To"], rows), isPossible: true };
}

function missing(form, text) {
  show(form, notice("trouble", text));
  return null;
}

function show(form, ...nodes) {
  form.querySelector(".result").replaceChildren(...nodes);
}

function notice(kind, text) {
  return Object.assign(document.createElement("p"), { className: kind, textContent: printable(text) });
}

function table(heads, rows) {
  const made = document.createElement("table");
  const head = made.createTHead().insertRow();
  for (const text of heads) head.append(Object.assign(document.createElement("th"), { scope: "col", textContent: text }));
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const text of row) line.insertCell().textContent = printable(text);
  }
  return made;
}

/** Of a datetime-local field, which has no zone: every time on the pages is in UTC. */
function utc(text) {
  return Date.parse(`${text}Z`);
}

function addTime(form) {
  const field = form.querySelector("[data-ms]");
  if (!field.value) return;
  const hidden = Object.assign(document.createElement("input"), {
    type: "hidden", name: field.dataset.ms, value: utc(field.value),
  });
  form.append(hidden);
  form.elements.offset.disabled = true;
}
