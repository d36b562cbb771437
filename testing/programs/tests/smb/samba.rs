//! The fixture of Samba, with its own client and no RDMA: what fails here is no fault of rockery's.

use std::net::SocketAddr;

use programs::samba::{self, SHARE, results, smbclient, smbtorture};
use programs::{Machine, Namespace, Samba};

/// Long enough for anything here on a busy machine.
const SECONDS: u64 = 60;

/// Writes a file through a server, and reads it again under another name.
fn there_and_back(machine: &Namespace, server: SocketAddr, options: &[&str]) {
    let folder = tempfile::TempDir::new().expect("a folder");
    let (original, copy) = (folder.path().join("original"), folder.path().join("copy"));
    let content: Vec<u8> = (0..1_000_003_u32)
        .map(|it| (it.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    std::fs::write(&original, &content).expect("our folder");
    let commands = format!(
        "put {} file; get file {}",
        original.display(),
        copy.display()
    );
    let argv = smbclient(server, SHARE, options, &commands);
    samba::run(machine, &argv, SECONDS)
        .expect("it ends")
        .expect_success();
    assert_eq!(
        std::fs::read(&copy).expect("a copy"),
        content,
        "{options:?}"
    );
}

#[test]
fn samba_serves_signed_unsigned_and_encrypted_sessions() {
    let namespace = Namespace::alone().unwrap();
    let samba = Samba::within(&namespace, 1445, &[]).unwrap();
    for options in [
        &[][..],
        &["--client-protection=sign"],
        &["--client-protection=encrypt"],
        &["-U", "%"],
    ] {
        there_and_back(&namespace, samba.address(), options);
        assert_eq!(
            std::fs::metadata(samba.share().join("file")).unwrap().len(),
            1_000_003
        );
    }
}

#[test]
fn samba_ends_with_its_fixture_and_when_it_is_killed() {
    let namespace = Namespace::alone().unwrap();
    let mut killed = Samba::within(&namespace, 1445, &[]).unwrap();
    let running = Samba::within(&namespace, 1446, &[]).unwrap();
    // With commands of its standard input smbclient stays connected until that ends.
    let words = smbclient(killed.address(), SHARE, &[], "");
    let line = format!(
        "exec {} < <(echo 'put /etc/passwd file'; exec sleep 60 2>&-)",
        words[..words.len() - 2].join(" ")
    );
    let mut client = namespace.start(&["bash", "-c", &line]).unwrap();
    let connected = || Ok(killed.share().join("file").exists());
    assert!(
        programs::machine::until(SECONDS, connected).unwrap(),
        "{}",
        client.output().unwrap()
    );
    assert!(
        client.finished().unwrap().is_none(),
        "{}",
        client.output().unwrap()
    );
    let ids: Vec<u32> = [killed.processes(), running.processes()].concat();
    killed.kill().unwrap();
    client.kill().unwrap();
    drop(running);
    let is_running = |id: &u32| {
        let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        state.contains("(smbd")
            && !state
                .rsplit(')')
                .next()
                .is_some_and(|rest| rest.trim_start().starts_with('Z'))
    };
    let gone = || Ok(!ids.iter().any(is_running));
    assert!(programs::machine::until(SECONDS, gone).unwrap(), "{ids:?}");
}

#[test]
fn smbtorture_runs_against_samba() {
    let namespace = Namespace::alone().unwrap();
    let samba = Samba::within(&namespace, 1445, &[]).unwrap();
    let connect = samba::run(
        &namespace,
        &smbtorture(samba.address(), "smb2.connect"),
        SECONDS,
    )
    .unwrap();
    assert_eq!(
        results(&connect.clone().expect_success().output),
        ["success: connect"]
    );
    let absent = samba::run(
        &namespace,
        &smbtorture(samba.address(), "smb2.no-such-test"),
        SECONDS,
    )
    .unwrap();
    assert!(!absent.succeeded(), "{}", absent.output);
}
