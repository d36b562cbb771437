"""Fixtures for tests of RDMA programs. pytest finds them where the wheel is installed; in a source tree they
need ``-p rockery.pytest_plugin``.

::

    def test_bandwidth(rdma_hosts):
        server, client = rdma_hosts
        server.popen(["ib_write_bw", "-d", server.device])
        client.run(["ib_write_bw", "-d", client.device, server.address])

A test whose own process calls verbs (pyverbs, ctypes) needs the libraries from its start:
``rockery run -- pytest``, or ``python -m rockery -m pytest``.
"""

import pytest

from .faults import Faults
from .hosts import Host, Hosts


@pytest.fixture
def rdma_host():
    """This machine with its loopback device: a `rockery.hosts.Host`."""
    host = Host("127.0.0.1", "rk_lo")
    yield host
    host.close()


@pytest.fixture
def rdma_faults(tmp_path):
    """Faults for programs of a test: a `rockery.faults.Faults` without rules."""
    return Faults(tmp_path / "rdma-faults.jsonl")


@pytest.fixture
def rdma_hosts():
    """Two `rockery.hosts.Host` in network namespaces of their own, joined by a cable with an MTU of 1500.

    :raises OSError: the kernel permits this user no network namespaces
    """
    with Hosts() as both:
        yield both
