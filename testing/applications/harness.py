"""What every application needs: a folder, a Python of its own, processes on rockery's device, their end."""

import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = pathlib.Path(__file__).resolve().parent / "clients"
# The interface that the applications use, its address, and the device that rockery has for it.
INTERFACE, ADDRESS, DEVICE = "net0", "10.9.0.1", "rk_net0"
# How long one application may take on two busy cores.
SECONDS = 240


class Failure(Exception):
    """The application did not do what it should, with its output."""


class NotHere(Exception):
    """This machine has not what the application needs, with what that is."""


class Application:
    """An application's folder below target/applications, and the processes that its test has started."""

    def __init__(self, name):
        self.folder = ROOT / "target" / "applications" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rockery = os.environ.get("ROCKERY", str(ROOT / "target" / "release" / "rockery"))
        self.started = []

    # Before the test, with a network.

    def pip(self, *packages, dependencies=True):
        """Installs Python packages in a virtual environment of the application."""
        stamp = self.folder / "installed"
        wanted = repr((packages, dependencies))
        if stamp.exists() and wanted in stamp.read_text():
            return
        words = [] if dependencies else ["--no-deps"]
        self.pip_command("install", "-q", *words, *packages)
        with stamp.open("a") as file:
            file.write(wanted + "\n")

    def pip_command(self, *words):
        """Runs pip in the virtual environment of the application, which is made if it is not there."""
        python = self.folder / "venv" / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "--disable-pip-version-check", *words], check=True)

    def apt(self, *packages):
        """Installs packages of the distribution that are not installed."""
        status = subprocess.run(
            ["dpkg-query", "-W", "-f", "${db:Status-Status}\n", *packages], capture_output=True, text=True
        )
        if status.returncode == 0 and set(status.stdout.split()) == {"installed"}:
            return
        subprocess.run(
            ["apt-get", "install", "-qq", "--no-install-recommends", *packages],
            check=True,
            env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"),
            stdout=subprocess.DEVNULL,
        )

    def debian_source(self, package, suite):
        """Unpacks the source of a Debian package of another release; returns its folder."""
        target = self.folder / package
        if target.exists():
            return target
        apt = self.folder / "apt"
        for folder in ("lists/partial", "cache/archives/partial", "etc/preferences.d"):
            (apt / folder).mkdir(parents=True, exist_ok=True)
        (apt / "status").touch()
        mirror = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian", "Created-By: Packages"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        if not mirror:
            raise Failure("this machine's apt has no mirror of Debian to get a source package from")
        keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
        (apt / "sources.list").write_text(f"deb-src [signed-by={keyring}] {mirror[0]} {suite} main\n")
        options = {
            "Dir::Etc::SourceList": apt / "sources.list",
            "Dir::Etc::SourceParts": "-",
            "Dir::State": apt,
            "Dir::Etc": apt / "etc",
            "Dir::State::Lists": apt / "lists",
            "Dir::State::Status": apt / "status",
            "Dir::Cache": apt / "cache",
            "APT::Sandbox::User": "root",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        for command in (["update", "-qq"], ["source", "-qq", "--download-only", package]):
            subprocess.run(["apt-get", *words, *command], check=True, cwd=self.folder)
        description = next(self.folder.glob(f"{package}_*.dsc"))
        subprocess.run(
            ["dpkg-source", "--no-check", "-x", description, target],
            check=True,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
        )
        return target

    def compile(self, compiler, source, *options):
        """Compiles a program of the folder clients; returns its path."""
        program = self.folder / pathlib.Path(source).stem
        subprocess.run([compiler, "-O2", "-o", program, CLIENTS / source, *options], check=True)
        return program

    # During the test, in a network namespace.

    @property
    def python(self):
        return str(self.folder / "venv" / "bin" / "python")

    def installed(self, name):
        """A program of the application's virtual environment."""
        return str(self.folder / "venv" / "bin" / name)

    def client(self, name):
        """A script of the folder clients, which no module of this folder hides a Python package from."""
        return str(CLIENTS / name)

    def on_rockery(self, *words, variables=None, options=()):
        """Starts a program on rockery's devices."""
        return self.start(self.rockery, "run", *options, "--", *words, variables=variables)

    def start(self, *words, variables=None):
        """Starts a program, whose output goes to a file."""
        log = self.folder / f"{len(self.started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
                env=dict(os.environ, **(variables or {})),
            )
        process.log = log
        process.words = " ".join(str(word) for word in words)
        self.started.append(process)
        return process

    def output(self, process):
        return process.log.read_text(errors="replace")

    def fail(self, process, reason):
        raise Failure(f"{process.words}\n{reason}:\n{self.output(process)[-3000:]}")

    def wait_for(self, process, text):
        """Waits until a program has printed a text."""
        until = time.monotonic() + SECONDS
        while text not in self.output(process):
            # Its last output may have come since.
            if process.poll() is not None and text not in self.output(process):
                self.fail(process, f"it ended before it printed {text!r}")
            if time.monotonic() > until:
                self.fail(process, f"it did not print {text!r} in {SECONDS} s")
            time.sleep(0.1)
        return self.output(process)

    def wait_for_all(self, process, texts):
        """Waits until a program has printed all these texts; returns its output up to its end."""
        for text in texts:
            self.wait_for(process, text)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.fail(process, f"it did not end in {SECONDS} s")
        return self.output(process)

    def wait_for_port(self, process, port):
        """Waits until a program of this namespace listens on a TCP port."""
        until = time.monotonic() + SECONDS
        while f":{port:04X} 00000000:0000 0A" not in pathlib.Path("/proc/net/tcp").read_text():
            if process.poll() is not None:
                self.fail(process, f"it ended before it listened on port {port}")
            if time.monotonic() > until:
                self.fail(process, f"it did not listen on port {port} in {SECONDS} s")
            time.sleep(0.1)

    def succeeds(self, process, *texts):
        """Waits for a program's end, and returns its output, which has these texts."""
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.fail(process, f"it did not end in {SECONDS} s")
        if status != 0:
            self.fail(process, f"exit status {status}")
        said = self.output(process)
        for text in texts:
            if text not in said:
                self.fail(process, f"it did not print {text!r}")
        return said

    def succeeds_once_ready(self, start, *texts):
        """Starts a program anew while it fails, because its peer does not say when it is ready."""
        until = time.monotonic() + SECONDS / 4
        while True:
            process = start()
            try:
                return self.succeeds(process, *texts)
            except Failure:
                if time.monotonic() > until:
                    raise
            time.sleep(0.5)

    def end(self):
        """Ends all that was started, with their children."""
        for process in reversed(self.started):
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(5)
                except ProcessLookupError:
                    break
                except subprocess.TimeoutExpired:
                    continue
        self.started.clear()
