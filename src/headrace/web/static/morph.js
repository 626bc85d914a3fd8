// Makes an element's children look like some HTML by changing as little as it can: focus, selection and open details stay.

export function morph(target, html) {
  const wanted = document.createElement("template");
  wanted.innerHTML = html;
  matchChildren(target, wanted.content);
}

function matchChildren(old, wanted) {
  const keyed = new Map();
  for (const child of old.children) {
    if (child.dataset?.key) keyed.set(child.dataset.key, child);
  }
  let place = old.firstChild;
  for (const next of [...wanted.childNodes]) {
    const key = next.dataset?.key;
    const known = key ? keyed.get(key) : place;
    if (known && !(key === undefined && known.dataset?.key) && isAlike(known, next)) {
      if (known === place) place = place.nextSibling;
      else old.insertBefore(known, place);
      update(known, next);
    } else {
      old.insertBefore(next, place);
    }
  }
  while (place) {
    const after = place.nextSibling;
    place.remove();
    place = after;
  }
}

function isAlike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName;
}

function update(old, wanted) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
    return;
  }
  if (old.hasAttribute("data-keep")) return;
  for (const { name } of [...old.attributes]) {
    if (!wanted.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  matchChildren(old, wanted);
}
