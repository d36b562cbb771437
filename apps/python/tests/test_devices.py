"""Programs on rockery's devices: `python -m rockery`, and the fixtures of the plugin."""

import subprocess
import sys

import pytest


def test_a_script_finds_the_devices(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import ctypes, sys\n"
                      "verbs = ctypes.CDLL('libibverbs.so.1')\n"
                      "verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)\n"
                      "verbs.ibv_get_device_name.restype = ctypes.c_char_p\n"
                      "devices = verbs.ibv_get_device_list(None)\n"
                      "names = []\n"
                      "while devices[len(names)]:\n"
                      "    device = ctypes.c_void_p(devices[len(names)])\n"
                      "    names.append(verbs.ibv_get_device_name(device).decode())\n"
                      "print(names, sys.argv[1:])\n")
    said = subprocess.run([sys.executable, "-m", "rockery", script, "one", "--two"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    assert "rk_lo" in said and said.endswith("['one', '--two']\n")
    usage = subprocess.run([sys.executable, "-m", "rockery"], stderr=subprocess.PIPE, text=True)
    assert usage.returncode == 2 and usage.stderr.startswith("usage: ")


def test_one_host(rdma_host):
    arguments = ["ib_write_bw", "-d", rdma_host.device, "-n", "100"]
    server = rdma_host.popen(arguments)
    client = until_connected(rdma_host, [*arguments, rdma_host.address])
    assert "65536" in client.stdout
    assert server.wait(60) == 0


def test_two_hosts(rdma_hosts):
    left, right = rdma_hosts
    assert (left.device, left.address, right.address) == ("rk_eth0", "10.254.0.1", "10.254.0.2")
    server = left.popen(["ib_send_lat", "-d", left.device, "-n", "100"])
    until_connected(right, ["ib_send_lat", "-d", right.device, "-n", "100", left.address])
    assert server.wait(60) == 0
    # Hosts are apart: without rockery there is the cable, and no device.
    assert "10.254.0.2" in right.run(["ip", "address"], rdma=False).stdout
    assert "10.254.0.2" not in left.run(["ip", "address"], rdma=False).stdout


def until_connected(host, arguments):
    """Runs a client, again while its server does not listen yet."""
    for _ in range(100):
        done = host.run(arguments, check=False)
        if "Couldn't connect" not in done.stdout:
            break
    assert done.returncode == 0, done.stdout
    return done


def test_a_program_that_fails_is_reported_with_its_output(rdma_host):
    from rockery.hosts import ProgramError
    program = ["sh", "-c", "echo out; echo no device >&2; exit 3"]
    with pytest.raises(ProgramError) as raised:
        rdma_host.run(program)
    told = str(raised.value)
    assert "out\n" in told and "no device" in told and raised.value.returncode == 3
    with pytest.raises(subprocess.CalledProcessError, match="no output"):
        rdma_host.run(["false"])
    assert rdma_host.run(program, check=False).stdout == "out\nno device\n"


def test_output_that_was_not_read_is_printed_at_the_end(capsys):
    from rockery.hosts import Host
    host = Host("127.0.0.1", "rk_lo")
    host.popen(["sh", "-c", "echo failed to listen"]).wait(60)
    host.close()
    told = capsys.readouterr().out
    assert "127.0.0.1: output of" in told and "failed to listen" in told


def test_faults_that_a_program_meets_are_in_the_journal(rdma_host, rdma_faults):
    assert rdma_faults.journal() == []
    rdma_faults.add("get_device_list: fail ENODEV times 1")
    done = rdma_host.run(["ibv_devices"], faults=rdma_faults, check=False)
    assert "No such device" in done.stdout, done.stdout
    told = [(one["rule"], one["point"], one["fault"]) for one in rdma_faults.journal()]
    assert told == [(1, "get_device_list", "fail ENODEV")]
    assert repr(rdma_faults) == "<rockery faults get_device_list: fail ENODEV times 1>"


def test_rules_that_are_wrong_are_reported(rdma_host, rdma_faults):
    from rockery.hosts import ProgramError
    rdma_faults.add("get_device_list: fall ENODEV")
    with pytest.raises(ProgramError, match="`fall` is no fault of a call"):
        rdma_host.run(["ibv_devices"], faults=rdma_faults)
