"""The bill of materials: what is in the packages besides rockery's own code (CycloneDX 1.5, JSON)."""

import datetime
import json
import subprocess
import tomllib
import uuid

# Crates whose code is not in any package.
NOT_SHIPPED = {"rockery-tidy", "rockery-programs", "rockery-python", "rockery-torture"}


def metadata(root, architecture):
    target = f"{architecture}-unknown-linux-gnu"
    words = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    return json.loads(subprocess.run(words, cwd=root, check=True, stdout=subprocess.PIPE).stdout)


def linked(found):
    """Packages by their identifier that are linked into rockery, with what each depends on.

    Build scripts, their dependencies, and procedural macros run in the compiler only.
    """
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}

    def is_macro(identifier):
        return any("proc-macro" in target["kind"] for target in packages[identifier]["targets"])

    waiting = [identifier for identifier in found["workspace_members"]
               if packages[identifier]["name"] not in NOT_SHIPPED]
    dependencies = {}
    while waiting:
        identifier = waiting.pop()
        if identifier in dependencies:
            continue
        below = [dependency["pkg"] for dependency in nodes[identifier]["deps"]
                 if any(kind["kind"] is None for kind in dependency["dep_kinds"])
                 and not is_macro(dependency["pkg"])
                 and packages[dependency["pkg"]]["name"] not in NOT_SHIPPED]
        dependencies[identifier] = below
        waiting += below
    return packages, dependencies


def component(package, checksums):
    purl = f"pkg:cargo/{package['name']}@{package['version']}"
    described = {"type": "library", "bom-ref": purl, "name": package["name"], "version": package["version"],
                 "purl": purl}
    if package["license"]:
        # Cargo accepted `MIT/Apache-2.0` for `MIT OR Apache-2.0`.
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return described


def openssl(version):
    """The library is linked statically, from a package of Debian's or Ubuntu's."""
    purl = f"pkg:generic/openssl@{version}"
    return {"type": "library", "bom-ref": purl, "name": "openssl", "version": version, "purl": purl,
            "licenses": [{"expression": "Apache-2.0"}]}


def write(root, architecture, openssl_version, version, path, epoch):
    packages, dependencies = linked(metadata(root, architecture))
    locked = tomllib.loads((root / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
    components = [component(packages[identifier], checksums) for identifier in dependencies]
    components.append(openssl(openssl_version))
    components.sort(key=lambda it: (it["name"], it["version"]))
    # A crate of the registry and one of ours may not have the same reference.
    reference = {identifier: f"pkg:cargo/{packages[identifier]['name']}@{packages[identifier]['version']}"
                 for identifier in dependencies}
    edges = [{"ref": reference[identifier],
              "dependsOn": sorted(reference[below] for below in dependencies[identifier])}
             for identifier in sorted(dependencies, key=reference.get)]
    main = {"type": "application", "bom-ref": "rockery", "name": "rockery", "version": version,
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
            "properties": [{"name": "architecture", "value": architecture}]}
    time = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    content = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
               "metadata": {"timestamp": time, "component": main},
               "components": components, "dependencies": edges}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    content["serialNumber"] = f"urn:uuid:{serial}"
    path.write_text(json.dumps(content, indent=1) + "\n")
