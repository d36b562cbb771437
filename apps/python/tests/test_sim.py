"""Single runs: the same bytes as the command, tables, errors, interrupts."""

import dataclasses
import pickle
import signal
import threading

import pandas
import pyarrow
import pyarrow.parquet
import pytest
import rockery

FABRIC = {
    "title": "Three \"hosts\" and a \\",
    "topology": {"kind": "star", "hosts": 3},
    "workload": [{"pattern": "each", "from": ["h1", "h2"], "to": ["h0"], "message": "64KiB", "messages": 10}],
}

# Ends after minutes only.
LONG = """
topology = { kind = "star", hosts = 9 }
duration = "10s"
[[workload]]
pattern = "each"
from = ["h[1-8]"]
to = ["h0"]
"""


@pytest.mark.parametrize("name, options, arguments", [
    ("incast.toml", {}, []),
    ("crs504/ecn-off.toml", {"sample": "50us", "hops": True}, ["--sample", "50us", "--hops"]),
    ("crs504/ecn-off.toml", {"seed": 5, "settings": {"nic.default.mtu": 1024}, "threads": 2},
     ["--seed", "5", "--set", "nic.default.mtu=1024"]),
])
def test_reports_are_those_of_the_command(examples, command, tmp_path, name, options, arguments):
    csv, parquet = tmp_path / "flows.csv", tmp_path / "flows.parquet"
    expected = command(examples / name, *arguments, "--json", "--csv", csv, "--parquet", parquet)
    report = rockery.sim(examples / name, **options)
    assert report.json() + "\n" == expected
    assert report.flows_csv() == csv.read_text()
    assert report.ports_csv() == (tmp_path / "flows.csv.ports.csv").read_text()
    assert pyarrow.table(report.flows).equals(pyarrow.parquet.read_table(parquet))
    if options.get("hops"):
        assert report.hops_csv() == (tmp_path / "flows.csv.hops.csv").read_text()
        assert pyarrow.table(report.hops).equals(pyarrow.parquet.read_table(str(parquet) + ".hops.parquet"))
        assert len(report.samples) > 0


def test_a_report_survives_json_and_pickle(examples, tmp_path):
    report = rockery.sim(examples / "crs504/ecn-off.toml", sample="50us", hops=True)
    (tmp_path / "report.json").write_text(report.json())
    for again in (rockery.load(tmp_path / "report.json"), pickle.loads(pickle.dumps(report))):
        assert again == report
        assert again.json() == report.json()
        assert again.samples.to_pydict() == report.samples.to_pydict()
    with pytest.raises(ValueError, match="no report: missing field"):
        rockery.Report.from_json("{}")


def test_tables_are_frames_with_the_right_types():
    report = rockery.sim(FABRIC)
    frame = report.flows.to_pandas()
    assert list(frame["from"]) == ["h1", "h2"]
    assert frame["bytes"].dtype == "int64" and frame["failed"].dtype == "bool"
    assert frame["completion_us"].min() > 0
    pandas.testing.assert_frame_equal(frame, pyarrow.table(report.flows).to_pandas(), check_dtype=False)
    assert report.workloads["flows"] == [2]
    assert {"h0", "h1"} <= set(report.ports["port"])
    assert report.samples.to_pydict()["at_us"] == []
    with pytest.raises(KeyError, match="no column 'byte': there are run"):
        report.flows["byte"]


def test_arrow_streams_can_be_left_unread():
    report = rockery.sim(FABRIC)
    for _ in range(100):
        report.flows.__arrow_c_stream__()
        report.flows.__arrow_c_schema__()
    assert pyarrow.schema(report.flows) == pyarrow.table(report.flows).schema


def test_findings_and_html(examples):
    report = rockery.sim(examples / "crs504/ecn-off.toml")
    (finding,) = [finding for finding in report.findings if "ECN is off" in finding.cause]
    assert finding.severity == "slow"
    assert finding.instead.startswith("/interface ethernet switch qos")
    assert "ecn=yes" in report._repr_html_() and "<table>" in report._repr_html_()
    hostile = rockery.sim(dict(FABRIC, title="<script>"))
    assert "<script>" not in hostile._repr_html_()


def test_sources_are_equal(tmp_path):
    @dataclasses.dataclass
    class Fabric:
        title: str
        topology: dict
        workload: list

    class Model:
        def to_dict(self):
            return FABRIC

    text = ('title = "Three \\"hosts\\" and a \\\\"\ntopology = {kind = "star", hosts = 3}\n[[workload]]\n'
            'pattern = "each"\nfrom = ["h1", "h2"]\nto = ["h0"]\nmessage = "64KiB"\nmessages = 10\n')
    (tmp_path / "fabric.toml").write_text(text)
    report = rockery.sim(FABRIC)
    for source in (Fabric(**FABRIC), Model(), text, tmp_path / "fabric.toml", str(tmp_path / "fabric.toml")):
        assert rockery.sim(source) == report


def test_mistakes_have_their_place(tmp_path):
    file = tmp_path / "fabric.toml"
    file.write_text('topology = { kind = "star", hosts = 2 }\n[[workload]]\npattern = "each"\n'
                    'frmo = ["h1"]\n')
    with pytest.raises(rockery.FabricError, match="did you mean") as raised:
        rockery.sim(file)
    (problem,) = raised.value.problems
    assert (problem["line"], problem["column"], problem["file"]) == (4, 1, str(file))
    with pytest.raises(OSError, match="absent.toml"):
        rockery.sim(tmp_path / "absent.toml")
    with pytest.raises(OSError, match="absent.toml"):
        rockery.sim("absent.toml")
    for options in ({"threads": 0}, {"sample": "5"}, {"sample": "0us"}):
        with pytest.raises(ValueError, match="threads|sample"):
            rockery.sim(FABRIC, **options)
    with pytest.raises(IndexError, match="the sweep has 1"):
        rockery.sim(FABRIC, point=1)
    with pytest.raises(TypeError, match="not int"):
        rockery.sim(5)


def test_includes_are_found_beside_the_file(tmp_path):
    (tmp_path / "base.toml").write_text('topology = { kind = "star", hosts = 3 }\n')
    (tmp_path / "fabric.toml").write_text(
        'include = ["base.toml"]\n[[workload]]\npattern = "each"\nfrom = ["h1"]\nto = ["h0"]\nmessages = 1\n')
    assert len(rockery.sim(tmp_path / "fabric.toml").flows) == 1


def test_other_threads_run_during_a_run():
    # With the lock held this thread could not count before the run has ended.
    done = threading.Thread(target=rockery.sim, args=(dict(FABRIC, **{"workload": [
        dict(FABRIC["workload"][0], messages=5000)]}),))
    done.start()
    count = 0
    while done.is_alive():
        count += 1
    assert count > 1000


def test_ctrl_c_ends_a_run(interruptible):
    program = f"import rockery\nprint('begin', flush=True)\nrockery.sim({LONG!r})\n"
    child = interruptible(program)
    assert child.stdout.readline() == "begin\n"
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
