"""The Python wheel: the module, the command and the libraries (PEP 427), without a build backend, since
everything in it is built already. The same files give the same bytes."""

import base64
import hashlib
import time
import zipfile

# Python's stable interface of 3.9 (PEP 384); glibc 2.28 and later (PEP 600).
TAG = "cp39-abi3-manylinux_2_28_{architecture}"
# The extension module in the wheel.
MODULE = "_rockery.abi3.so"

METADATA = """\
Metadata-Version: 2.1
Name: rockery
Version: {version}
Summary: RoCEv2 devices in software, and a simulator of lossless networks
License: MIT OR Apache-2.0
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Rust
Provides-Extra: pandas
Requires-Dist: pandas; extra == "pandas"
Provides-Extra: arrow
Requires-Dist: pyarrow; extra == "arrow"
Provides-Extra: dask
Requires-Dist: distributed; extra == "dask"
Provides-Extra: ray
Requires-Dist: ray; extra == "ray"
Description-Content-Type: text/markdown

"""

WHEEL = """\
Wheel-Version: 1.0
Generator: rockery
Root-Is-Purelib: false
Tag: {tag}
"""


# pytest finds the fixtures without an option. The name is that of the module, so that `-p` with it, which
# earlier documentation had, is the same plug-in and not a second one.
ENTRY_POINTS = """\
[pytest11]
rockery.pytest_plugin = rockery.pytest_plugin
"""


def files_of(root, staged, module, version):
    """Paths in the wheel, and the files for them."""
    package = root / "apps/python/rockery"
    for file in sorted(package.iterdir()):
        if file.suffix in (".py", ".pyi") or file.name == "py.typed":
            yield f"rockery/{file.name}", file
    yield f"rockery/{MODULE}", module
    data = f"rockery-{version}.data"
    # The command finds its libraries by its own place. Wheels hold no links: the command makes them.
    for file in sorted((staged / "bin").iterdir()):
        yield f"{data}/scripts/{file.name}", file
    for file in sorted((staged / "lib/rockery").iterdir()):
        if not file.is_symlink():
            yield f"{data}/data/lib/rockery/{file.name}", file
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        yield f"rockery-{version}.dist-info/licenses/{name}", root / name


def write(root, staged, module, architecture, version, level, out, epoch):
    """Makes the wheel in `out` of the files that `staged` has below bin and lib, and of the extension module
    that cargo built."""
    tag = TAG.format(architecture=architecture)
    # Python's versions have no hyphen.
    version = version.replace("-", "+")
    info = f"rockery-{version}.dist-info"
    texts = {
        f"{info}/METADATA": METADATA.format(version=version) + (root / "docs/python.md").read_text(),
        f"{info}/WHEEL": WHEEL.format(tag=tag),
        f"{info}/entry_points.txt": ENTRY_POINTS,
    }
    # Times in zip files begin in 1980.
    moment = time.gmtime(max(epoch, 315532800))[:6]
    record = []
    path = out / f"rockery-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=min(level, 6)) as archive:
        def add(name, content, mode):
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, compresslevel=min(level, 6))
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")

        for name, file in files_of(root, staged, module, version):
            is_program = "/scripts/" in name or ".so" in file.name
            add(name, file.read_bytes(), 0o755 if is_program else 0o644)
        for name, text in texts.items():
            add(name, text.encode(), 0o644)
        lines = "".join(record) + f"{info}/RECORD,,\n"
        entry = zipfile.ZipInfo(f"{info}/RECORD", moment)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = 0o100644 << 16
        archive.writestr(entry, lines)
    return path
