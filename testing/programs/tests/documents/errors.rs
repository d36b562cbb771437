//! docs/errors.md: programs print the messages that the page explains, and the commands that it gives exist.

use std::collections::BTreeSet;
use std::fs;

use programs::{Job, Namespace, Rockery};

const SECONDS: u64 = 60;

fn page() -> String {
    let path = programs::workspace().join("docs/errors.md");
    fs::read_to_string(path).expect("the page")
}

/// Runs a script of the shell, in which `run` is `rockery run`, in a namespace of its own.
fn output_of(script: &str) -> String {
    let alone = Namespace::alone().expect("a namespace");
    let script = format!(
        "run() {{ timeout 20 {} run \"$@\"; }}; {script}",
        Rockery::built().word()
    );
    let mut job = alone
        .start_plain(&["sh", "-c", &format!("{script}; exit 0")])
        .expect("it starts");
    job.wait(SECONDS).expect("it ends").output
}

/// Scripts, and the message that they lead to. `client` is behind a server of the same program.
const SITUATIONS: [(&str, &str); 14] = [
    (
        "ibv_devinfo",
        "Failed to get IB devices list: Function not implemented",
    ),
    ("ib_write_bw", "Did not detect devices"),
    (
        "timeout 20 rping -c -a 127.0.0.1 -C 1",
        "No RDMA devices were detected",
    ),
    ("run -- ibv_rc_pingpong -g 77", "can't read sgid of index"),
    ("run -- ib_write_bw -x 77", "Gid index should be between"),
    (
        "run -- ibv_rc_pingpong & sleep 1; run -- ibv_rc_pingpong localhost; wait",
        "RoCE needs a GID at both ends",
    ),
    (
        "run --fault 'modify_qp: fail EINVAL nth 2' -- ibv_rc_pingpong -g 1 & sleep 1; \
         run -- ibv_rc_pingpong -g 1 localhost; wait",
        "Failed to modify QP to RTR",
    ),
    (
        "run --fault 'modify_qp: fail ETIMEDOUT nth 2' -- ib_write_bw & sleep 1; \
         run -- ib_write_bw localhost; wait",
        "Unable to Connect the HCA's through the link",
    ),
    (
        "run -- rping -c -a 127.0.0.1 -C 1",
        "RDMA_CM_EVENT_REJECTED, error 8",
    ),
    (
        "run --fault 'rdma_resolve_addr: fail ENODEV' -- rping -c -a 127.0.0.1 -C 1",
        "rdma_resolve_addr: No such device",
    ),
    (
        "run -- ib_send_bw & sleep 1; run --fault 'completion: status RETRY_EXC_ERR nth 3' -- ib_send_bw \
         localhost",
        "Failed status 12",
    ),
    (
        "run -- ib_send_bw & sleep 1; run --fault 'completion: status RNR_RETRY_EXC_ERR nth 3' -- ib_send_bw \
         localhost",
        "Failed status 13",
    ),
    (
        "run -- ib_send_bw no-such-host.invalid",
        "Problem in resolving basic address and port",
    ),
    (
        "run --fault 'reg_mr: fail ENOMEM' -- ibv_rc_pingpong -g 1",
        "Couldn't register MR",
    ),
];

#[test]
fn programs_print_the_messages_of_the_page() {
    let page = page();
    for (script, message) in SITUATIONS {
        let said = output_of(script);
        assert!(said.contains(message), "{script}: {said}");
        let headings = page.lines().filter(|line| line.starts_with("### "));
        let is_there = { headings }.any(|line| line.contains(message));
        assert!(is_there, "docs/errors.md has no heading with {message:?}");
    }
}

#[test]
fn commands_of_the_page_exist() {
    let page = page();
    let commands: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        let (own, program) = command.split_once(" -- ").unwrap_or((command, ""));
        for one in [own, program] {
            let words: Vec<&str> = one.split_whitespace().collect();
            let Some(name) = words.first().filter(|name| **name != "PROGRAM") else {
                continue;
            };
            let found = output_of(&format!("command -v {name} && echo there"));
            let is_ours = *name == "rockery";
            assert!(is_ours || found.contains("there"), "{command}: no {name}");
            if is_ours {
                has_options(command, &words[1..]);
            }
        }
    }
}

/// Whether the help of a command of rockery has the options that the page gives it.
fn has_options(command: &str, words: &[&str]) {
    let rockery = Rockery::built();
    let is_name = |word: &&&str| word.chars().all(|it| it.is_ascii_lowercase());
    let names: Vec<&str> = words.iter().take(2).take_while(is_name).copied().collect();
    let help = output_of(&format!("{} {} --help", rockery.word(), names.join(" ")));
    assert!(help.contains("Usage: rockery"), "{command}: {help}");
    for option in words.iter().filter(|word| word.starts_with("--")) {
        assert!(
            help.contains(option),
            "{command}: {option} is not in {help}"
        );
    }
}
