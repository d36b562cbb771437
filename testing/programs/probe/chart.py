# chart.py FOLDER VALUES: the objects of a Helm chart's templates as JSON, for the expressions that ours use
# and no others: .Values, .Release, printf, quote, toJson, if and end. VALUES is JSON that replaces values.
import json
import re
import sys

import yaml

folder, values = sys.argv[1], json.loads(sys.argv[2])
with open(f"{folder}/values.yaml") as file:
    values = yaml.safe_load(file) | values
ROOT = {"Values": values, "Release": {"Name": "rockery", "Namespace": "kube-system"}}


def operand(word):
    if word.startswith('"'):
        return json.loads(word)
    value = ROOT
    for name in word.removeprefix(".").split("."):
        value = value[name]
    return value


def evaluate(expression):
    first, *rest = expression.split("|")
    words = re.findall(r'"[^"]*"|\S+', first)
    if words[0] == "printf":
        form, *arguments = map(operand, words[1:])
        value = form % tuple(arguments)
    elif words[0] == "toJson":
        value = json.dumps(operand(words[1]))
    else:
        (word,) = words
        value = operand(word)
    for function in rest:
        if function.strip() != "quote":
            raise SystemExit(f"unknown function {function}")
        value = json.dumps(str(value))
    return str(value)


def render(text):
    lines, shown = [], [True]
    for line in text.splitlines():
        control = re.fullmatch(r"\{\{- (if (\S+)|end) \}\}", line)
        if control and control[1] == "end":
            shown.pop()
        elif control:
            shown.append(shown[-1] and bool(operand(control[2])))
        elif shown[-1]:
            lines.append(re.sub(r"\{\{ (.*?) \}\}", lambda found: evaluate(found[1]), line))
    if len(shown) != 1:
        raise SystemExit("an if without an end")
    return "\n".join(lines)


with open(f"{folder}/templates/daemonset.yaml") as file:
    objects = list(yaml.safe_load_all(render(file.read())))
with open(f"{folder}/Chart.yaml") as file:
    chart = yaml.safe_load(file)
print(json.dumps({"chart": chart, "values": values, "objects": objects}))
