#!/usr/bin/env python3
"""package.py OUT BUILT...: makes the packages of what cargo built in the folders BUILT, in the folder OUT.

Each BUILT is for another processor, which its programs tell. Packages that are for every processor are made
once. The same files and the same SOURCE_DATE_EPOCH (by default the time of the commit) give the same
packages, byte for byte: names are sorted, owners are root, and times are SOURCE_DATE_EPOCH.
"""

import argparse
import filecmp
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import typing

import sbom
import wheel

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
# Tests make packages of programs that are not optimized, often: for them time counts and not the size.
LEVEL = 1 if os.environ.get("DIST_PROFILE") == "packages" else 9


class Architecture(typing.NamedTuple):
    """A processor: its names in the kernel and in Debian, and what runs its programs on another one."""
    name: str
    debian: str
    emulators: tuple


# By the machine in the head of an ELF file.
ARCHITECTURES = {
    62: Architecture("x86_64", "amd64", ("qemu-x86_64-static", "qemu-x86_64")),
    183: Architecture("aarch64", "arm64", ("qemu-aarch64-static", "qemu-aarch64")),
}


def run(*command, **options):
    """Runs a command; its output is shown only if it fails."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", **options)
    if done.returncode != 0:
        sys.exit(f"package: {command[0]} failed:\n{done.stdout}")
    return done.stdout


def git(*arguments):
    done = subprocess.run(["git", "-C", ROOT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def version_of_workspace():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def disagreement(version, changelog, tags):
    """What contradicts `version`: tags of the commit and the changelog's newest section; None if all agree.

    >>> disagreement("0.2.0", "## Unreleased\\n", [])
    >>> disagreement("0.2.0", "## 0.2.0 - 2027-01-31\\n", ["v0.2.0"])
    >>> disagreement("0.2.0", "## Unreleased\\n", ["v0.2.0"])
    "tag v0.2.0, but CHANGELOG.md begins with 'Unreleased': name the section 0.2.0"
    >>> disagreement("0.2.0", "## 0.1.0\\n", [])
    "CHANGELOG.md begins with '0.1.0', Cargo.toml has 0.2.0"
    >>> disagreement("0.2.0", "## 0.2.0\\n", ["v0.3.0"])
    'tag v0.3.0, but Cargo.toml has 0.2.0'
    """
    sections = re.findall(r"^## (\S+)", changelog, re.MULTILINE)
    newest = sections[0] if sections else "no section"
    for tag in tags:
        if re.match(r"v\d", tag) and tag != f"v{version}":
            return f"tag {tag}, but Cargo.toml has {version}"
    if f"v{version}" in tags and newest != version:
        return f"tag v{version}, but CHANGELOG.md begins with '{newest}': name the section {version}"
    if newest not in ("Unreleased", version):
        return f"CHANGELOG.md begins with '{newest}', Cargo.toml has {version}"
    return None


def architecture_of(built):
    """The processor that the programs of a folder are for."""
    with open(built / "rockery", "rb") as file:
        head = file.read(20)
    machine = struct.unpack_from("<H", head, 18)[0] if head[:6] == b"\x7fELF\x02\x01" else None
    if machine not in ARCHITECTURES:
        known = ", ".join(known.name for known in ARCHITECTURES.values())
        sys.exit(f"package: {built}/rockery is not a program for any of {known}")
    return ARCHITECTURES[machine]


def emulator(architecture, built):
    """The words before the command of a program for another processor. Its C library is where dist.sh has
    unpacked it."""
    if architecture.name == os.uname().machine:
        return ""
    found = next(filter(None, map(shutil.which, architecture.emulators)), None)
    if not found:
        sys.exit(f"package: no {architecture.emulators[0]}, which runs {built}/rockery to write its manual "
                 "pages: install the package qemu-user-static")
    return f"{found} -L {built.parent.parent / ('debian-' + architecture.name)}"


def stage(built, folder, architecture):
    """The files of a package below `folder`: bin, lib/rockery, share. Units name the paths of a .deb and an
    .rpm; install.sh of the tarball writes its own."""
    variables = {"UNIT_PREFIX": "/usr", "EMULATOR": emulator(architecture, built)}
    run(ROOT / "scripts/install.sh", folder, built, cwd=ROOT, env=dict(os.environ, **variables))


def as_packaged(epoch):
    """A filter for tarfile: nothing of the user and the moment of the build."""
    def owned_by_root(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = epoch
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry
    return owned_by_root


def tarball(folder, path, epoch):
    with open(path, "wb") as file, gzip.GzipFile("", "wb", LEVEL, file, mtime=epoch) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        # `add` goes through folders in the order of names.
        archive.add(folder, folder.name, filter=as_packaged(epoch))


def installed_size(folder):
    """In KiB, as a .deb states it."""
    return sum(-(-file.lstat().st_size // 1024) for file in folder.rglob("*") if not file.is_dir())


def deb(name, root, version, architecture, out):
    """Makes a .deb of `root`; packaging/NAME.control describes it."""
    control = root / "DEBIAN"
    control.mkdir()
    size = installed_size(root)
    text = (PACKAGING / f"{name}.control").read_text()
    text = text.replace("@VERSION@", version).replace("@SIZE@", str(size))
    text = text.replace("@ARCHITECTURE@", architecture.debian)
    (control / "control").write_text(text)
    if name == "rockery-default":
        # The dynamic loader's cache is made again when the package comes and when it goes. Its file is no
        # conffile: those stay behind when a package is removed, and programs would go on using rockery.
        (control / "triggers").write_text("activate-noawait ldconfig\n")
    architecture = re.search(r"^Architecture: (\S+)", text, re.MULTILINE)[1]
    path = out / f"{name}_{version}_{architecture}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zxz", f"-z{min(LEVEL, 6)}", "--build", root, path)
    shutil.rmtree(control)


def rpms(folder, default, version, architecture, out, epoch):
    """Makes both .rpm by packaging/rockery.spec. A .rpm states versions without `-`."""
    with tempfile.TemporaryDirectory() as work:
        defines = {
            "rockery_version": version.replace("-", "~"), "rockery_files": folder, "rockery_default": default,
            # That of rockery-default is the same whichever processor it was made beside.
            "_target_platform": "linux",
            "_topdir": work, "_rpmdir": f"{work}/made", "_buildhost": "rockery",
            "use_source_date_epoch_as_buildtime": 1, "clamp_mtime_to_source_date_epoch": 1,
            "_binary_payload": f"w{LEVEL}.gzdio", "__os_install_post": "%{nil}", "_build_id_links": "none",
        }
        words = [word for item in defines.items() for word in ("--define", f"{item[0]} {item[1]}")]
        run("rpmbuild", "-bb", "--target", f"{architecture.name}-linux", *words, PACKAGING / "rockery.spec",
            env=dict(os.environ, SOURCE_DATE_EPOCH=str(epoch)))
        for path in sorted(pathlib.Path(work, "made").rglob("*.rpm")):
            # That of rockery-default is for every processor.
            if not (out / path.name).exists():
                content = bytearray(path.read_bytes())
                if path.name.endswith(".noarch.rpm"):
                    # The lead, which no rpm of today reads and no digest covers, has the processor that it
                    # was made beside.
                    content[8:10] = struct.pack(">H", 1)
                (out / path.name).write_bytes(content)


def default_root(folder):
    """What `rockery-default` has: every program of the machine finds rockery's libraries first."""
    file = folder / "etc/ld.so.conf.d/00-rockery.conf"
    file.parent.mkdir(parents=True)
    file.write_text("/usr/lib/rockery\n")
    return folder


def checksums(out):
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
             for file in sorted(out.iterdir()) if file.name != "SHA256SUMS"]
    (out / "SHA256SUMS").write_text("".join(lines))


def put_in_place(made, out):
    """Gives a folder of packages its name; where it has these files already, they stay.

    The packages are the same bytes each time, and tests in several processes have them made: one reads them
    while another one makes them again.
    """
    names = sorted(file.name for file in made.iterdir())
    if out.is_dir() and names == sorted(file.name for file in out.iterdir()):
        equal, _, _ = filecmp.cmpfiles(made, out, names, shallow=False)
        if equal == names:
            return
    shutil.rmtree(out, ignore_errors=True)
    made.rename(out)


def packages(built, work, version, made, epoch):
    """The packages for one processor."""
    architecture = architecture_of(built)
    name = f"rockery-{version}-{architecture.name}-linux"
    folder = work / name
    stage(built, folder, architecture)
    system = work / f"system-{architecture.name}"
    shutil.copytree(folder, system / "usr", symlinks=True)
    shutil.copy(PACKAGING / "copyright", system / "usr/share/doc/rockery/copyright")
    deb("rockery", system, version, architecture, made)
    rpms(system, work / "default", version, architecture, made, epoch)
    shutil.copy(PACKAGING / "install.sh", folder / "install.sh")
    tarball(folder, made / f"{name}.tar.gz", epoch)
    wheel.write(ROOT, folder, built / "lib_rockery.so", architecture.name, version, LEVEL, made, epoch)
    openssl = (built / "openssl-version").read_text().strip()
    sbom.write(ROOT, architecture.name, openssl, version, made / f"{name}.cdx.json", epoch)
    return architecture


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("built", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    os.umask(0o022)
    version = version_of_workspace()
    tags = git("tag", "--points-at", "HEAD").split()
    wrong = disagreement(version, (ROOT / "CHANGELOG.md").read_text(), tags)
    if wrong:
        sys.exit(f"package: {wrong}")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or 0)
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out.parent) as work:
        work = pathlib.Path(work)
        made = work / "made"
        made.mkdir()
        default = default_root(work / "default")
        for built in options.built:
            architecture = packages(built.resolve(), work, version, made, epoch)
        # For every processor.
        deb("rockery-default", default, version, architecture, made)
        for name in ("Containerfile", "get.sh"):
            shutil.copy(PACKAGING / name, made / name)
        checksums(made)
        put_in_place(made, options.out)
    for file in sorted(options.out.iterdir()):
        print(f"{file.stat().st_size:10}  {file}")


if __name__ == "__main__":
    main()
