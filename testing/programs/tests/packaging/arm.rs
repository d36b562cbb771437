//! The packages for 64-bit ARM. `device::arm` runs the libraries in an emulated machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use programs::{Arm, Packages, workspace};
use tempfile::TempDir;

use crate::dist::{expect_glibc_2_28, exported, said, unpacked, version};

/// The machine in the head of an ELF file.
const EM_AARCH64: u16 = 183;

/// The machine that an ELF file is for; none for other files.
fn machine(file: &Path) -> Option<u16> {
    let bytes = fs::read(file).expect("a file of a package");
    let is_elf = bytes.starts_with(b"\x7fELF") && bytes.len() > 20;
    is_elf.then(|| u16::from_le_bytes([bytes[18], bytes[19]]))
}

/// The files below a folder, by their paths in it.
fn files_below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let listed = said(
        Command::new("find")
            .args([".", "-type", "f"])
            .current_dir(folder),
    );
    let read = |name: &str| fs::read(folder.join(name)).expect("a file of a package");
    listed
        .lines()
        .map(|name| (name.to_owned(), read(name)))
        .collect()
}

#[test]
fn each_package_says_that_it_is_for_64_bit_arm() {
    let packages = Packages::made_for_arm();
    let path = |begin: &str, end: &str| packages.folder().join(packages.named(begin, end));
    let field = |deb: &Path| {
        said(
            Command::new("dpkg-deb")
                .arg("-f")
                .arg(deb)
                .arg("Architecture"),
        )
    };
    assert_eq!(field(&path("rockery_", "_arm64.deb")).trim(), "arm64");
    assert_eq!(field(&path("rockery-default_", "_all.deb")).trim(), "all");
    let arch = |rpm: &Path| {
        said(
            Command::new("rpm")
                .args(["-qp", "--qf", "%{ARCH}"])
                .arg(rpm),
        )
    };
    let numbered = format!("rockery-{}", version());
    assert_eq!(arch(&path(&numbered, ".aarch64.rpm")), "aarch64");
    assert_eq!(arch(&path("rockery-default-", ".noarch.rpm")), "noarch");
    packages.named("rockery-", "-cp39-abi3-manylinux_2_28_aarch64.whl");
    let (folder, _files) = unpacked(&packages, "aarch64");
    let info = format!("wheel/rockery-{}.dist-info/WHEEL", version());
    let tag = fs::read_to_string(folder.path().join(info)).expect("the wheel's description");
    assert!(
        tag.contains("Tag: cp39-abi3-manylinux_2_28_aarch64\n"),
        "{tag}"
    );
    let bill = fs::read_to_string(path("rockery-", "-aarch64-linux.cdx.json"));
    let bill = bill.expect("the bill of materials");
    assert!(bill.contains("\"value\": \"aarch64\"") && bill.contains("pkg:generic/openssl@3."));
}

#[test]
fn each_program_and_library_runs_on_64_bit_arm_with_glibc_2_28() {
    let (folder, files) = unpacked(&Packages::made_for_arm(), "aarch64");
    for file in &files {
        assert_eq!(machine(file), Some(EM_AARCH64), "{}", file.display());
    }
    expect_glibc_2_28(&files, "ld-linux-aarch64.so.1");
    // Nothing of this machine's is among the other files.
    for name in files_below(folder.path()).keys() {
        let found = machine(&folder.path().join(name));
        assert!(found.is_none_or(|found| found == EM_AARCH64), "{name}");
    }
}

/// Names and versions are those of the C interface, whatever the processor.
#[test]
fn libraries_for_arm_export_what_those_for_x86_64_export() {
    let (_arm, theirs) = unpacked(&Packages::made_for_arm(), "aarch64");
    let (_here, ours) = unpacked(&Packages::made(), "x86_64");
    for name in [
        "libibverbs.so.1",
        "librdmacm.so.1",
        "librockery-providers.so",
    ] {
        let of = |files: &[PathBuf]| -> BTreeSet<String> {
            exported(files.iter().find(|it| it.ends_with(name)).expect(name))
        };
        let (theirs, ours) = (of(&theirs), of(&ours));
        assert!(
            !ours.is_empty() && ours == theirs,
            "{name}: {:?}",
            ours.symmetric_difference(&theirs)
        );
    }
}

/// The folder of the headers of a release of Debian for ARM, which are fetched once.
fn headers_of_arm(release: &str) -> PathBuf {
    let folder = workspace().join(format!("target/distributions/headers-arm64-{release}"));
    let script = r#"
        set -euo pipefail
        mkdir -p "$1" && exec 9>"$1/lock" && flock 9
        [[ ! -e $1/complete ]] || exit 0
        . scripts/other-apt.sh
        configure "$1/apt" "${DEBIAN_MIRROR:-$(mirror Debian)}" "$2" main \
            "${DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}" arm64
        cd "$1"
        apt-get update -q && apt-get download -q libibverbs-dev librdmacm-dev
        for package in *.deb; do dpkg -x "$package" .; done
        touch complete"#;
    said(
        Command::new("bash")
            .args(["-c", script, "bash"])
            .arg(&folder)
            .arg(release)
            .current_dir(workspace()),
    );
    folder.join("usr/include")
}

/// Whether a compiler of C for ARM takes a program with the headers of a release; what it says.
fn compiled_for_arm(program: &str, release: &str) -> (bool, String) {
    // The compiler is there when something was built.
    Packages::built_for_arm();
    let folder = TempDir::new().expect("a temporary folder");
    let source = folder.path().join("layout.c");
    fs::write(&source, program).expect("our own file");
    let mut compiler = Command::new(Packages::tools().join("python-zig"));
    compiler.args(["cc", "-target", "aarch64-linux-gnu.2.28", "-c", "-isystem"]);
    compiler.arg(headers_of_arm(release)).arg(&source);
    let output = compiler.arg("-o").arg(source.with_extension("o")).output();
    let output = output.expect("zig, which the packages are built with");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), text)
}

/// Structs that are longer in the release of Debian 13, with their sizes. Their fields have the same offsets.
const LONGER: [(&str, usize); 1] = [("ibv_port_attr", 56)];

/// The compiler compares each offset with its own. Debian 12 has rdma-core 44, as the list, and Debian 13 has
/// 56.
#[test]
fn structs_have_the_offsets_that_c_has_on_arm() {
    for release in ["bookworm", "trixie"] {
        let mut program = String::from("#include <stddef.h>\n#include <rdma/rdma_cma.h>\n");
        let mut expect = |what: String, value: usize| {
            writeln!(program, "_Static_assert({what} == {value}, \"{what}\");").expect("a string");
        };
        for layout in abi::LAYOUTS_OF_ARM {
            let name = layout.name;
            let longer = LONGER.iter().find(|it| release == "trixie" && it.0 == name);
            expect(
                format!("sizeof(struct {name})"),
                longer.map_or(layout.size, |it| it.1),
            );
            for (field, offset) in layout.fields {
                expect(format!("offsetof(struct {name}, {field})"), *offset);
            }
        }
        let (is_equal, said) = compiled_for_arm(&program, release);
        assert!(is_equal, "{release}: {said}");
        // That of x86-64 is an error.
        let of_x86_64 = "offsetof(struct ibv_context, abi_compat) == 320";
        program += &format!("_Static_assert({of_x86_64}, \"\");\n");
        let (is_equal, said) = compiled_for_arm(&program, release);
        assert!(!is_equal && said.contains("328 == 320"), "{said}");
    }
}

/// With the names of Debian 13's libraries, which its programs for ARM look for.
#[test]
fn every_symbol_of_debian_for_arm_is_there() {
    let arm = Arm::new("debian-13-arm64").expect("a distribution for 64-bit ARM");
    let (_folder, files) = unpacked(&Packages::made_for_arm(), "aarch64");
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        let symbols = |file: &Path| programs::symbols::exported(file).expect("symbols");
        let ours = symbols(files.iter().find(|it| it.ends_with(name)).expect(name));
        let theirs = symbols(&arm.root().join("usr/lib/aarch64-linux-gnu").join(name));
        assert!(theirs.len() > 50, "{name}: {}", theirs.len());
        // Without the functions that IBVERBS_1.1 replaced before this processor was there.
        let is_replaced = |symbol: &str| {
            let name = symbol.strip_suffix("@IBVERBS_1.0");
            name.is_some_and(|name| theirs.contains(&format!("{name}@IBVERBS_1.1")))
        };
        let missing: Vec<&String> = theirs
            .iter()
            .filter(|it| !is_replaced(it) && !ours.contains(*it))
            .collect();
        assert_eq!(missing, Vec::<&String>::new(), "{name}");
    }
}

/// What the emulated machine runs is what the other packages have too.
#[test]
fn the_deb_and_the_rpm_have_the_files_of_the_tarball() {
    let packages = Packages::made_for_arm();
    let (folder, _files) = unpacked(&packages, "aarch64");
    let inside = folder
        .path()
        .join(format!("rockery-{}-aarch64-linux", version()));
    fs::remove_file(inside.join("install.sh")).expect("the tarball's own script");
    let tarball = files_below(&inside);
    assert!(tarball.len() > 50, "{}", tarball.len());
    for (begin, end) in [
        ("rockery_", "_arm64.deb"),
        (&*format!("rockery-{}", version()), ".aarch64.rpm"),
    ] {
        let package = packages.folder().join(packages.named(begin, end));
        let root = TempDir::new().expect("a temporary folder");
        let unpack = match end.ends_with("deb") {
            true => "dpkg-deb -x \"$1\" .",
            false => "rpm2cpio \"$1\" | cpio -id --quiet",
        };
        said(
            Command::new("sh")
                .args(["-c", unpack, "sh"])
                .arg(&package)
                .current_dir(root.path()),
        );
        let mut files = files_below(&root.path().join("usr"));
        files.remove("./share/doc/rockery/copyright");
        let differs = tarball.iter().find(|it| files.get(it.0) != Some(it.1));
        assert_eq!(differs.map(|it| it.0), None, "{begin}*{end}");
        assert_eq!(files.len(), tarball.len(), "{begin}*{end}");
    }
}

/// As the machines of the workflows, which have Ubuntu: their apt knows no mirror of Debian, and they have
/// Debian's keys only by a package.
#[test]
fn a_machine_with_ubuntu_gets_packages_of_debian_for_arm() {
    let folder = TempDir::new().expect("a temporary folder");
    let fake = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("our own file");
        said(Command::new("chmod").arg("+x").arg(path));
    };
    let path = format!(
        "{}:{}",
        folder.path().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let shell = |text: &str| {
        let mut shell = Command::new("bash");
        shell.args(["-c", text]).current_dir(workspace());
        said(shell.env("PATH", &path))
    };
    let mirrors = ". scripts/other-apt.sh; mirror Debian; mirror Ubuntu";
    fake("apt-get", "");
    assert_eq!(shell(mirrors), "http://deb.debian.org/debian\n\n");
    fake("apt-get", "echo \"http://$4/\" | tr -d ' :'");
    assert_eq!(shell(mirrors), "http//OriginDebian/\nhttp//OriginUbuntu/\n");
    fake("apt-get", "echo called: \"$@\"");
    fake("dpkg-query", "");
    fake("sudo", "shift; exec \"$@\"");
    for (architectures, is_for_arm) in [("x86_64 aarch64", true), ("x86_64", false)] {
        let installed = shell(&format!(
            "ARCH=\"{architectures}\" scripts/packages.sh dist"
        ));
        assert!(installed.contains(" python3-venv"), "{installed}");
        for package in ["qemu-user-static", "debian-archive-keyring"] {
            assert_eq!(installed.contains(package), is_for_arm, "{installed}");
        }
    }
}

/// `scripts/arm-check.sh`, with a cargo that only says how tests ended.
#[test]
fn the_table_to_send_has_what_failed_and_what_did_not_run() {
    let folder = TempDir::new().expect("a temporary folder");
    let (cargo, log) = (folder.path().join("cargo"), folder.path().join("log"));
    let text = "#!/bin/sh\n\
                case \"$*\" in\n\
                  build* | *--message-format=json* | *--doc*) ;;\n\
                  *rockery-host*) echo 'test result: FAILED. 3 passed; 1 failed;'; exit 1 ;;\n\
                  *) echo 'test result: ok. 2 passed; 0 failed;' ;;\n\
                esac\n";
    fs::write(&cargo, text).expect("our own file");
    said(Command::new("chmod").arg("+x").arg(&cargo));
    let mut check = Command::new(workspace().join("scripts/arm-check.sh"));
    check.env("CARGO", &cargo).env("ARM_CHECK_LOG", &log);
    let output = check.env_remove("MAKEFLAGS").output();
    let output = output.expect("bash");
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&output.stdout);
    let row = |begin: &str| -> &str {
        let found = printed.lines().find(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("no {begin}:\n{printed}"))
    };
    for begin in [
        "| machine | ",
        "| kernel | ",
        "| distribution | ",
        "| commit | ",
    ] {
        assert!(row(begin).len() > begin.len() + 3, "{printed}");
    }
    assert!(row("| build | ").contains(" passed, "));
    let links = row("| operating system, links, rings");
    assert!(
        links.contains(" passed, ") && links.ends_with(", 2 tests |"),
        "{links}"
    );
    let host = row("| devices, shared memory");
    assert!(
        host.contains("**failed**") && host.ends_with(", 3 tests |"),
        "{host}"
    );
    // No test program was built, so none has run.
    let perftest = row("| perftest: ");
    assert!(
        perftest.contains("**failed**") && perftest.ends_with(", 0 tests |"),
        "{perftest}"
    );
    let last = printed.trim_end().lines().next_back();
    let names_log = format!("the output of all commands: {}", log.display());
    assert_eq!(last, Some(&*names_log));
    assert!(fs::read_to_string(&log).is_ok_and(|text| text.contains("1 failed")));
}
