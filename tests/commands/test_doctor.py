import importlib.metadata
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from acme_ext.commands import doctor
from acme_ext.utils import install

REQUIREMENTS = [
    Requirement(line)
    for line in (
        "dm-launchpad==0.5.0",
        "dm-reverb==0.7.3",
        "tensorflow-cpu>=2.8.4,<2.9",
        "numpy<2,>=1.25",
        'tomli>=2; python_version < "3.0"',
        'ale-py>=0.10; extra == "atari"',
        'opencv-python-headless>=4.8; extra == "atari"',
        'envpool>=0.8.4; extra == "envpool"',
        'onnx==1.12.0; python_version < "3.0" and extra == "onnx"',
        'onnx>=1.16; python_version >= "3.0" and extra == "onnx"',
        'acme-ext[atari]; extra == "all"',
        'pytest>=8; extra == "test"',
    )
]
GOOD = {"dm-launchpad": "0.5.0", "dm-reverb": "0.7.3", "tensorflow-cpu": "2.8.4", "numpy": "1.26.4"}


def only(findings, level):
    return [finding for finding in findings if finding.level == level]


def test_versions_in_range_are_ok_and_other_markers_are_left_out():
    findings = list(doctor.check_versions(REQUIREMENTS, GOOD.get))
    assert [finding.what for finding in findings] == [
        "dm-launchpad 0.5.0",
        "dm-reverb 0.7.3",
        "tensorflow-cpu 2.8.4",
        "numpy 1.26.4",
    ]
    assert not only(findings, "problem")


def test_a_wrong_version_is_named_with_its_range_its_reason_and_the_command_that_mends_it():
    (finding,) = only(doctor.check_versions(REQUIREMENTS, (GOOD | {"numpy": "2.1.0"}).get), "problem")
    assert finding.what == (
        "numpy 2.1.0 is installed, <2,>=1.25 is needed: TensorFlow 2.8 and Reverb are compiled against NumPy 1"
    )
    assert finding.mend == "pip install 'numpy<2,>=1.25'"


def test_a_missing_distribution_is_a_problem():
    findings = only(doctor.check_versions(REQUIREMENTS, {"numpy": "1.26.4"}.get), "problem")
    assert len(findings) == 3
    assert findings[1].what.startswith("dm-reverb is not installed, ==0.7.3 is needed")


def test_two_distributions_that_own_the_same_files_are_a_problem():
    assert not list(doctor.check_rivals(GOOD.get))
    (finding,) = doctor.check_rivals((GOOD | {"tensorflow": "2.15.0"}).get)
    assert finding.level == "problem"
    assert "tensorflow 2.15.0" in finding.what
    assert "pip uninstall -y tensorflow tensorflow-cpu" in finding.mend


def test_optional_parts_are_told_by_their_extra():
    installed = {"ale-py": "0.11.0", "envpool": "0.6.0", "onnx": "1.17.0"}
    atari, envpool, onnx = doctor.check_extras(REQUIREMENTS, installed.get)
    mend = install.command("atari")
    assert atari == doctor.Finding("ok", "optional atari: not installed (opencv-python-headless)", mend)
    assert envpool.level == "warning"
    assert "envpool 0.6.0 (>=0.8.4 is needed)" in envpool.what
    assert onnx == doctor.Finding("ok", "optional onnx: onnx 1.17.0")  # the other requirement is for another Python
    atari, *_ = doctor.check_extras(REQUIREMENTS, (installed | {"opencv-python-headless": "4.11.0"}).get)
    assert atari == doctor.Finding("ok", "optional atari: ale-py 0.11.0, opencv-python-headless 4.11.0")


def test_versions_other_than_the_tested_ones_are_named_with_those(tmp_path):
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("# by make lock\njax==0.5.3\nnumpy==1.26.4\nray==2.48.0\n")
    (finding,) = doctor.check_tested(constraints, {"jax": "0.5.3", "numpy": "1.26.4"}.get)
    assert finding == doctor.Finding("ok", f"the tested versions, of {constraints}")
    (finding,) = doctor.check_tested(constraints, {"jax": "0.6.2", "numpy": "1.26.4"}.get)
    assert (finding.level, finding.mend) == ("warning", install.command())
    assert finding.what == "1 version is not the tested one: jax 0.6.2 (0.5.3)"


def test_libpython_that_is_found_is_ok():
    assert doctor.check_libpython(FOUND, doctor.Probe(0, "", "")).level == "ok"
    # What else an import may fail of is another finding's.
    other = doctor.Probe(1, "", "ImportError: libtensorflow_framework.so.2: cannot open shared object file")
    assert doctor.check_libpython(FOUND, other).level == "ok"


FOUND = doctor.Probe(0, "/x/libpython3.10.so.1.0", "")
NOT_FOUND = doctor.Probe(1, "", "ImportError: libpython3.10.so.1.0: cannot open shared object file: No such file")


def test_libpython_that_is_found_only_with_our_help_is_a_warning_with_the_links_to_make():
    finding = doctor.check_libpython(FOUND, NOT_FOUND)
    assert finding.level == "warning"
    assert "only after `import acme_ext`" in finding.what
    assert "ln -s /x/libpython3.10.so.1.0" in finding.mend


@pytest.mark.reverb
def test_a_process_of_its_own_tells_where_libpython_is():
    probe = doctor.run_line(doctor._LIBPYTHON_LINE)  # this one has loaded it by its name already
    assert probe.code == 0
    assert probe.output.endswith("libpython3.10.so.1.0")


def test_libpython_that_is_not_found_is_a_problem_with_what_to_install():
    finding = doctor.check_libpython(doctor.Probe(1, "", ""), NOT_FOUND)
    assert finding.level == "problem"
    assert "libpython3.10.so.1.0, which Reverb and Courier are linked against, isn't found" in finding.what
    assert "package libpython3.10" in finding.mend
    assert "uv venv --managed-python --python 3.10" in finding.mend


@pytest.mark.parametrize(
    ("version", "system", "machine", "level"),
    [
        ((3, 10, 13), "Linux", "x86_64", "ok"),
        ((3, 12, 1), "Linux", "aarch64", "ok"),
        ((3, 14, 0), "Darwin", "arm64", "ok"),
        ((3, 12, 1), "Darwin", "x86_64", "warning"),
        ((3, 9, 18), "Linux", "x86_64", "problem"),
        ((3, 15, 0), "Linux", "x86_64", "problem"),
    ],
)
def test_platform(version, system, machine, level):
    finding = doctor.check_platform(version, system, machine)
    assert finding.level == level
    assert f"on {system}, {machine}" in finding.what
    assert bool(finding.mend) == (level != "ok")


def test_tables_and_ways_of_running_are_told():
    tables, ways = doctor.check_engines(["launchpad", "ray", "reverb"])
    assert tables == doctor.Finding("ok", "tables for the replay: reverb, embedded")
    said = "ways of running: in one process, compiled, on recorded data, as a program ({} Launchpad)"
    assert ways == doctor.Finding("ok", said.format("with") + ", on Ray")
    tables, ways = doctor.check_engines([])
    assert (tables.level, tables.what) == ("ok", "tables for the replay: embedded")
    assert "uv venv --python 3.10" in tables.mend
    assert ways == doctor.Finding("ok", said.format("without"))


def test_an_undefined_symbol_is_explained_with_the_three_parts_that_must_be_of_one_build():
    probe = doctor.Probe(
        1,
        "",
        "Traceback (most recent call last):\nImportError: /x/courier/python/libserialization_cc_proto.so: "
        "undefined symbol: _ZNK6google8protobuf7Message11GetTypeNameEv",
    )
    finding = doctor.check_import("courier", probe, REQUIREMENTS)
    assert finding.level == "problem"
    assert "not of one build" in finding.what
    for part in ("'dm-launchpad==0.5.0'", "'dm-reverb==0.7.3'", "'tensorflow-cpu<2.9,>=2.8.4'"):
        assert part in finding.mend
    assert "ale-py" not in finding.mend
    assert install.command() in doctor.check_import("courier", probe, []).mend  # where the versions couldn't be read


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        (doctor.Probe(None, "", ""), "it had not ended after 120 s"),
        (doctor.Probe(-signal.SIGSEGV, "", ""), "it died of signal 11"),
        (doctor.Probe(-signal.SIGILL, "", ""), "AVX"),
        (
            doctor.Probe(1, "", "ModuleNotFoundError: No module named 'reverb'\n\nSee https://example.org"),
            "No module named",
        ),
        (doctor.Probe(3, "", ""), "no message"),
    ],
)
def test_any_other_failure_of_an_import_is_told_in_one_line(probe, reason):
    finding = doctor.check_import("reverb", probe, REQUIREMENTS)
    assert finding.level == "problem"
    assert finding.mend
    assert reason in finding.what
    assert "\n" not in finding.what


def test_probes_run_in_a_process_of_their_own(monkeypatch):
    probe = doctor.run_line("import sys; print('out'); sys.exit('err')")
    assert (probe.code, probe.output, probe.error) == (1, "out", "err")
    monkeypatch.setattr(doctor, "IMPORT_SECONDS", 0.2)
    assert doctor.run_line("import time; time.sleep(60)").code is None


def test_jax_without_a_device_names_the_variable_that_may_be_at_fault(monkeypatch):
    failed = doctor.Probe(1, "", "Traceback\nRuntimeError: Unable to initialize backend 'cuda'")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert "JAX_PLATFORMS" not in doctor.check_jax(failed, nvidia=False).mend
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    finding = doctor.check_jax(failed, nvidia=False)
    assert finding.level == "problem"
    assert "Unable to initialize backend 'cuda'" in finding.what
    assert "unset JAX_PLATFORMS" in finding.mend


def test_an_idle_graphics_card_is_a_warning():
    cpu = doctor.Probe(0, "JAX 0.5.3 on cpu: 1 x cpu", "")
    assert doctor.check_jax(cpu, nvidia=False).level == "ok"
    warned = doctor.check_jax(cpu, nvidia=True)
    assert (warned.level, warned.mend) == ("warning", install.command("cuda"))
    assert doctor.check_jax(doctor.Probe(0, "JAX 0.5.3 on gpu: 1 x NVIDIA H200", ""), nvidia=True).level == "ok"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "no proxy"),
        ({"http_proxy": ""}, "no proxy"),
        ({"HTTP_PROXY": "http://proxy:3128"}, "no proxy"),  # gRPC reads the lower case only
        ({"http_proxy": "http://proxy:3128"}, "http_proxy is set"),
        ({"grpc_proxy": "http://proxy:3128", "no_proxy": "*"}, "grpc_proxy is set"),
    ],
)
def test_a_proxy_is_no_problem_since_programs_pass_it_by(environ, said):
    finding = doctor.check_proxies(environ)
    assert finding.level == "ok"
    assert not finding.mend
    assert finding.what.startswith(said)


@pytest.mark.parametrize(
    ("free", "writable", "level"),
    [
        (50 * doctor.GIB, True, "ok"),
        (doctor.GIB // 2, True, "warning"),
        (doctor.MIB, True, "problem"),
        (doctor.GIB, False, "warning"),
    ],
)
def test_room(free, writable, level):
    finding = doctor.check_room("current folder", "/somewhere", free, writable)
    assert finding.level == level
    assert "/somewhere" in finding.what
    assert ("--run-dir" in finding.mend) == (level != "ok")


def test_one_core_is_a_warning():
    assert doctor.check_cores(1).level == "warning"
    assert doctor.check_cores(2) == doctor.Finding("ok", "2 cores")


@pytest.mark.reverb
def test_where_nothing_is_installed_each_part_is_a_problem_and_the_exit_code_says_so(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setattr(importlib.metadata, "requires", missing)
    monkeypatch.setattr(doctor, "run_line", lambda line: doctor.Probe(1, "", f"ModuleNotFoundError: {line}"))
    lines = []
    assert doctor.run_doctor(lines.append) == 1
    problems = [line for line in lines if line.startswith("problem")]
    assert "no version could be checked" in problems[0]
    assert len(problems) >= 5  # the versions, three imports, JAX
    assert re.fullmatch(r"\d+ problems, \d+ warnings?", lines[-1])


def test_the_exit_code_is_zero_where_there_are_only_warnings(monkeypatch):
    findings = [doctor.Finding("ok", "fine"), doctor.Finding("warning", "odd", "mend it")]
    monkeypatch.setattr(doctor, "diagnose", lambda: findings)
    lines = []
    assert doctor.run_doctor(lines.append) == 0
    assert lines == ["ok       fine", "warning  odd", "           -> mend it", "0 problems, 1 warning"]


@pytest.mark.slow
def test_the_environment_of_the_tests_is_sound():
    stack = [f for f in doctor.diagnose() if re.match(r"import |optional |JAX |[\w-]+ [\d.]+ is installed", f.what)]
    if install.has_reverb_wheels():
        assert {"import reverb", "import courier", "import acme"} <= {f.what for f in stack}
    assert not only(stack, "problem")


def test_it_runs_without_a_single_installed_package():
    code = (
        "import sys\nsys.path.insert(0, sys.argv[1])\n"
        "from acme_ext.commands import doctor\nprint(doctor.check_cores(2))"
    )
    root = str(pathlib.Path(doctor.__file__).parents[2])
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, root], capture_output=True, text=True, check=True)
    assert "2 cores" in done.stdout
