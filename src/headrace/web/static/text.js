// Names that anybody may choose, for the eye: control characters and marks of direction as escapes, as in the HTML that
// comes from the server.

const UNSAFE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function printable(text) {
  return String(text).replace(UNSAFE, (found) => {
    const code = found.charCodeAt(0).toString(16);
    return code.length > 2 ? "\\u" + code.padStart(4, "0") : "\\x" + code.padStart(2, "0");
  });
}
