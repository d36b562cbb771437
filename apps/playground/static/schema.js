// Completions from the JSON schema of fabric files.

// A schema without references and without the alternative "null".
function resolve(root, schema) {
  while (schema) {
    if (schema.$ref) {
      schema = schema.$ref.slice(2).split("/").reduce((at, key) => at?.[key], root);
    } else if (schema.anyOf) {
      schema = schema.anyOf.find((one) => one.type !== "null");
    } else if (schema.allOf?.length === 1) {
      [schema] = schema.allOf;
    } else {
      return schema;
    }
  }
  return null;
}

// The schema at a path of keys; lists are entered.
function at(root, path) {
  let schema = resolve(root, root);
  for (const key of path) {
    if (schema?.items) schema = resolve(root, schema.items);
    schema = resolve(root, schema?.properties?.[key] ?? schema?.additionalProperties);
  }
  return schema?.items ? resolve(root, schema.items) : schema;
}

const keys = (path) => path.match(/"[^"]*"|[^."\s]+/g)?.map((key) => key.replaceAll('"', "")) ?? [];

const first = (text = "") => text.split(". ")[0].replace(/\s+/g, " ");

// What can stand at the cursor: `from` is where the word begins that a completion replaces.
export function completions(root, text, cursor) {
  const before = text.slice(0, cursor);
  const line = before.slice(before.lastIndexOf("\n") + 1);
  const tables = [...before.slice(0, before.length - line.length).matchAll(/^\s*\[\[?([^\]\n]*)\]\]?/gm)];
  const table = keys(tables.at(-1)?.[1] ?? "");
  const header = line.match(/^\s*\[\[?(.*)$/);
  const value = line.match(/^\s*([^=#]+?)\s*=\s*(.*)$/);
  let word;
  let options;
  if (header) {
    const path = keys(header[1]);
    word = /[.\s]$|^$/.test(header[1]) ? "" : path.pop();
    options = fields(at(root, path));
  } else if (value && !/[{[]/.test(value[2])) {
    word = value[2].trimStart();
    options = values(at(root, [...table, ...keys(value[1])]));
  } else if (value) {
    // Within an inline table: the keys after its last brace or comma.
    const inside = value[2].slice(Math.max(value[2].lastIndexOf("{"), value[2].lastIndexOf(",")) + 1);
    word = inside.trimStart();
    options = /=/.test(inside) ? [] : fields(at(root, [...table, ...keys(value[1])]), true);
  } else {
    const path = keys(line);
    word = /[.\s]$|^$/.test(line) ? "" : path.pop();
    options = fields(at(root, [...table, ...path]), true);
  }
  const fits = options.filter((option) => option.text.startsWith(word) && option.text !== word);
  return { from: cursor - word.length, options: fits };
}

function fields(schema, withValue = false) {
  const all = Object.entries(schema?.properties ?? {});
  return all.map(([name, field]) => ({
    text: withValue ? `${name} = ` : name, label: name, about: first(field.description),
  }));
}

function values(schema) {
  if (schema?.type === "boolean") {
    return ["true", "false"].map((text) => ({ text, label: text, about: "" }));
  }
  const choices = schema?.oneOf ?? schema?.enum?.map((value) => ({ const: value })) ?? [];
  const named = choices.flatMap((one) => one.enum?.map((value) => ({ const: value })) ?? [one]);
  return named.filter((one) => typeof one.const === "string").map((one) => ({
    text: `"${one.const}"`, label: one.const, about: first(one.description),
  }));
}
