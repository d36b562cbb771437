"""Hosts to run RDMA programs on: this machine, or network namespaces of their own.

Namespaces are made by ``unshare``, ``nsenter`` and ``ip``, as an ordinary user where the kernel permits user
namespaces, and as root otherwise. They end with the object.
"""

import os
import subprocess
import time

from ._command import command

# A namespace lives as long as a process in it does. This one ends when its standard input is closed, so also
# when this process is killed.
_KEEP = ["sh", "-c", "ip link set lo up && echo ready && exec cat"]


class ProgramError(subprocess.CalledProcessError):
    """A program whose exit status is not 0: the message has its command, its status and its output."""

    def __str__(self):
        output = self.output or ""
        if isinstance(output, bytes):
            output = output.decode(errors="replace")
        errors = self.stderr or ""
        if isinstance(errors, bytes):
            errors = errors.decode(errors="replace")
        said = "".join(text if text.endswith("\n") else text + "\n" for text in (output, errors) if text)
        return f"{super().__str__()}\n{said or '(no output)'}".rstrip()


class Host:
    """A host with RDMA devices. Its programs are started in ``rockery run``."""

    def __init__(self, address, device, enter=()):
        #: The IPv4 address, as text.
        self.address = address
        #: The name of the RDMA device with this address.
        self.device = device
        self._enter = list(enter)
        self._started = []

    def __repr__(self):
        return f"<rockery host {self.address}, {self.device}>"

    def argv(self, arguments, rdma=True, faults=None):
        """The command that runs ``arguments`` on this host; with ``rdma=False`` without rockery.

        :param faults: a `rockery.faults.Faults` that the program meets
        """
        run = [command(), "run", *(faults.options() if faults else []), "--"] if rdma else []
        return [*self._enter, *run, *map(str, arguments)]

    def run(self, arguments, *, rdma=True, faults=None, timeout=60, check=True, **options):
        """Runs a program to its end, and returns its `subprocess.CompletedProcess` with its output as text.

        :param arguments: the program and its arguments
        :param faults: a `rockery.faults.Faults` that the program meets
        :param timeout: seconds until it is killed
        :param check: whether an exit status other than 0 raises `ProgramError`
        """
        # pytest leaves this frame out of its report: the test's own line and the program's output remain.
        __tracebackhide__ = True
        options = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
        argv = self.argv(arguments, rdma, faults)
        done = subprocess.run(argv, timeout=timeout, check=False, **options)
        if check and done.returncode != 0:
            raise ProgramError(done.returncode, argv, done.stdout, done.stderr)
        return done

    def popen(self, arguments, *, rdma=True, faults=None, **options):
        """Starts a program, as `subprocess.Popen` does. It is killed when the test ends.

        :param faults: a `rockery.faults.Faults` that the program meets
        """
        options = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
        started = subprocess.Popen(self.argv(arguments, rdma, faults), **options)
        self._started.append(started)
        return started

    def close(self):
        """Kills what `popen` has started, and prints the output of it that was not read: pytest shows that of
        a test that fails."""
        for started in self._started:
            if started.poll() is None:
                started.kill()
            started.wait()
            if started.stdout is not None and not started.stdout.closed:
                rest = started.stdout.read()
                started.stdout.close()
                if isinstance(rest, bytes):
                    rest = rest.decode(errors="replace")
                if rest:
                    print(f"{self.address}: output of {' '.join(map(str, started.args))}:\n{rest.rstrip()}")
        self._started.clear()


class Hosts:
    """Two hosts, 10.254.0.1 and 10.254.0.2, joined by a cable. A context manager."""

    def __init__(self, mtu=1500):
        self._keepers = []
        self.hosts = ()
        try:
            self._make(mtu)
        except BaseException:
            self.close()
            raise

    def _keeper(self, argv):
        keeper = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        self._keepers.append(keeper)
        if keeper.stdout.readline().strip() != "ready":
            raise OSError(f"no network namespace: {' '.join(argv)}: {keeper.communicate()[0].strip()}")
        return keeper.pid

    def _make(self, mtu):
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        first = self._keeper(["unshare", *user, "--net", "--", *_KEEP])
        # Namespaces of one user namespace can have the two ends of a link.
        enter = ["nsenter", *(["--user", "--preserve-credentials"] if user else []), "--target"]
        second = self._keeper([*enter, str(first), "unshare", "--net", "--", *_KEEP])
        inside = [[*enter, str(keeper), "--net", "--"] for keeper in (first, second)]
        self._call([*inside[0], "ip", "link", "add", "eth0", "mtu", str(mtu), "type", "veth",
                    "peer", "name", "eth0", "mtu", str(mtu), "netns", str(second)])
        for number, into in enumerate(inside, 1):
            self._call([*into, "ip", "address", "add", f"10.254.0.{number}/24", "dev", "eth0"])
            self._call([*into, "ip", "link", "set", "eth0", "up"])
        for into in inside:
            self._wait_until_up(into)
        self.hosts = tuple(Host(f"10.254.0.{number}", "rk_eth0", into)
                           for number, into in enumerate(inside, 1))

    def _wait_until_up(self, into):
        """The kernel reports a link's state some time after both of its ends are up."""
        for _ in range(300):
            if "state UP" in self._call([*into, "ip", "-o", "link", "show", "eth0"]):
                return
            time.sleep(0.1)
        raise OSError("the link between the two namespaces does not come up")

    @staticmethod
    def _call(argv):
        done = subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise OSError(f"{' '.join(argv)}: {done.stdout.strip()}")
        return done.stdout

    def __enter__(self):
        return self.hosts

    def __exit__(self, *_exception):
        self.close()

    def close(self):
        """Ends programs and namespaces."""
        for host in self.hosts:
            host.close()
        for keeper in reversed(self._keepers):
            keeper.stdin.close()
            keeper.wait()
            keeper.stdout.close()
        self._keepers.clear()
