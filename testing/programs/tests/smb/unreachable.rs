//! Samba is down for a while: gateway and dial refuse clients as a server that is down does, and serve again
//! when Samba is back.

use programs::machine::until;
use programs::probe::Probe;
use programs::{Job, Rockery, SmbChain};

/// Long enough for anything here on a busy machine.
const SECONDS: u64 = 60;
/// Clients that try while Samba is down.
const CLIENTS: usize = 10;

/// How often a text is in the log of a process.
fn count(process: &mut dyn Job, text: &str) -> usize {
    process.output().expect("its log").matches(text).count()
}

/// Waits until a text is in the log so many times, and no more.
#[track_caller]
fn expect(process: &mut dyn Job, text: &str, times: usize) {
    let is_so = until(SECONDS, || {
        Ok(process.output()?.matches(text).count() >= times)
    });
    assert!(
        is_so.expect("its log") && count(process, text) == times,
        "{text}: {}",
        process.output().expect("its log")
    );
}

#[test]
fn clients_are_refused_while_the_server_is_down() {
    const DOWN: [&str; 2] = [
        "the SMB server takes no connections",
        "clients are refused until it does",
    ];
    const BACK: [&str; 2] = [
        "the SMB server takes connections again",
        "clients are accepted again",
    ];
    let mut chain = SmbChain::new();
    chain.there_and_back(&[]);
    chain.wait_until_idle();
    let probe =
        Probe::compile_with("cc", "stranger", &["-lrdmacm", "-libverbs"]).expect("a compiler");
    let direct = format!(
        "{} run -- {} 127.0.0.1 445 {CLIENTS} silent",
        Rockery::built().path().display(),
        probe.path().display()
    );
    let direct: Vec<&str> = direct.split_whitespace().collect();
    for turn in 1..=2 {
        chain.samba.kill().expect("it runs");
        // The gateway takes it for granted for so long that a server which took a connection takes the next.
        std::thread::sleep(smb::limits::REACHABLE_TIME);
        let connected = count(&mut chain.gateway, "connected ");
        let mut strangers = chain.namespace.start_plain(&direct).expect("it starts");
        let is_over = until(SECONDS, || Ok(strangers.output()?.contains("made ")));
        assert!(is_over.expect("its output"));
        let said = strangers.output().expect("its output");
        assert!(said.contains(&format!("made 0 of {CLIENTS}")), "{said}");
        assert_eq!(
            count(&mut chain.gateway, "connected "),
            connected,
            "clients were rejected before"
        );
        // The first client of the dial is accepted by the kernel. Further ones are refused.
        let is_refused = until(SECONDS, || {
            Ok(chain.smbclient(&[], "ls").output.contains("REFUSED"))
        });
        assert!(
            is_refused.expect("smbclient ends"),
            "{}",
            chain.smbclient(&[], "ls").output
        );
        expect(&mut chain.gateway, DOWN[0], turn);
        expect(&mut chain.dial, DOWN[1], turn);
        assert_eq!(count(&mut chain.gateway, "connected "), connected);

        chain.restart_samba();
        chain.there_and_back(&[]);
        expect(&mut chain.gateway, BACK[0], turn);
        expect(&mut chain.dial, BACK[1], turn);
        strangers.kill().expect("it is ours");
        chain.wait_until_idle();
    }
}
