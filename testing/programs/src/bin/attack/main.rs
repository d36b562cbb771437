//! Attacks on rockery's programs, bounded in time and packets, each with what the victim may lose at most.
//! Needs root, or root in a user namespace, for network namespaces and raw sockets: `make attack`.
//!
//! `attack [--short] [--sanitized] [--markdown] [--list] [NAME…]`: all attacks, or those whose names contain
//! a word; `--short` is what CI runs, `--sanitized` lets programs that are built with a sanitizer take more
//! memory, and `--list` prints the attacks and tries none. The exit status is 1 when a
//! victim lost more than it may.

mod cm;
mod fence;
mod hold;
mod inputs;
mod kernel;
mod labs;
mod machine;
mod place;
mod raw_host;
mod rc;
mod reflect;
mod routed;
mod smb;
mod storage;
mod tls;
mod users;

use std::process::ExitCode;

use place::Effort;

/// The result of an attack: the losses of the victim in figures; or the loss that it must not have.
type Outcome = Result<String, String>;

/// An attack: what the attacker does, what the victim must still do, and the function that tries it.
struct Attack {
    name: &'static str,
    attacker: &'static str,
    bound: &'static str,
    run: fn(Effort) -> Outcome,
}

impl Attack {
    /// Its row of the table, up to the result.
    fn row(&self) -> String {
        format!("| {} | {} | {} |", self.name, self.attacker, self.bound)
    }
}

const ATTACKS: &[Attack] = &[
    Attack {
        name: "cm-flood-spoofed",
        attacker: "CM REQs from made-up addresses to `serve nvme --rdma`",
        bound: "256 MiB more memory; a host still reads",
        run: cm::flood_spoofed,
    },
    Attack {
        name: "cm-flood-shared",
        attacker: "the same, with `--shared-receives`",
        bound: "256 MiB more memory, 1,024 descriptors; a host still reads",
        run: cm::flood_shared,
    },
    Attack {
        name: "cm-flood-one-address",
        attacker: "CM REQs from the attacker's own address",
        bound: "256 MiB more memory; a host still reads",
        run: cm::flood_one_address,
    },
    Attack {
        name: "cm-garbage",
        attacker: "management datagrams with random bytes in every field",
        bound: "a host still reads",
        run: cm::garbage,
    },
    Attack {
        name: "cm-stale",
        attacker: "REQs in the peer's name over a range of queue pair numbers",
        bound: "the connection made by RDMA-CM goes on",
        run: cm::stale,
    },
    Attack {
        name: "nvme-hold",
        attacker: "hosts of four addresses that stay in the discovery service, with queues of 1,024 entries",
        bound: "192 MiB more memory, 96 MiB afterwards; a host with a secret reads",
        run: hold::admin_queues,
    },
    Attack {
        name: "nvme-hold-io",
        attacker: "the same with REQs for I/O queues",
        bound: "192 MiB more memory, 96 MiB afterwards; a host with a secret reads",
        run: hold::io_queues,
    },
    Attack {
        name: "tls-slow-hello",
        attacker: "hosts of four addresses that send a ClientHello byte by byte",
        bound: "96 MiB more memory, 96 MiB afterwards; a host with a key reads, if need be at a further try",
        run: tls::slow_hellos,
    },
    Attack {
        name: "tls-stalled",
        attacker: "the same, which send a recorded ClientHello and nothing after it",
        bound: "96 MiB more memory, 96 MiB afterwards; a host with a key reads, if need be at a further try",
        run: tls::stalled,
    },
    Attack {
        name: "rc-nak",
        attacker: "NAKs in the peer's name to a known queue pair number, at random PSNs",
        bound: "the connection goes on",
        run: rc::naks,
    },
    Attack {
        name: "rc-cnp",
        attacker: "CNPs in the peer's name to a known queue pair number",
        bound: "the connection goes on",
        run: rc::notifications,
    },
    Attack {
        name: "rc-garbage",
        attacker: "random transport headers in the peer's name to a known queue pair number",
        bound: "the connection goes on",
        run: rc::garbage,
    },
    Attack {
        name: "probe-load",
        attacker: "orders to `doctor probe --listen` for load, in a host's name, with all kinds of nonces",
        bound: "the host receives no more bytes than are sent in its name",
        run: reflect::load,
    },
    Attack {
        name: "smb-silent",
        attacker: "128 silent SMB Direct connections without a session of each of four addresses",
        bound: "80 MiB more memory for `smb gateway`; a fifth address connects",
        run: smb::silent,
    },
    Attack {
        name: "smb-writes",
        attacker: "the same, which send WRITEs with descriptors of 8 MiB",
        bound: "80 MiB more memory for `smb gateway`; a fifth address connects",
        run: smb::writes,
    },
    Attack {
        name: "smb-reads",
        attacker: "the same, with READs of 8 MiB",
        bound: "80 MiB more memory for `smb gateway`; a fifth address connects",
        run: smb::reads,
    },
    Attack {
        name: "smb-descriptors",
        attacker: "the same, with 4,000 descriptors in each request",
        bound: "80 MiB more memory for `smb gateway`; a fifth address connects",
        run: smb::descriptors,
    },
    Attack {
        name: "icmp-mtu",
        attacker: "ICMP \"fragmentation needed\" with MTUs from 0 to 1499",
        bound: "the connection goes on",
        run: kernel::fragmentation_needed,
    },
    Attack {
        name: "icmpv6-mtu",
        attacker: "ICMPv6 \"packet too big\", against a connection of path MTU 4096",
        bound: "the connection goes on",
        run: kernel::packet_too_big,
    },
    Attack {
        name: "icmp-errors",
        attacker: "ICMP unreachable with every code, source quench, time exceeded, parameter problem",
        bound: "the connection goes on",
        run: kernel::errors,
    },
    Attack {
        name: "icmpv6-errors",
        attacker: "the same over IPv6",
        bound: "the connection goes on",
        run: kernel::errors_over_ipv6,
    },
    Attack {
        name: "icmp-errors-connecting",
        attacker: "the same while hosts connect to `serve nvme --rdma`",
        bound: "every host connects and reads",
        run: kernel::errors_during_connection,
    },
    Attack {
        name: "icmp-routes",
        attacker: "redirects, a router advertisement (hop limit 1, MTU 1280), group queries, IP fragments",
        bound: "connections on the same network go on",
        run: kernel::routes_and_groups,
    },
    Attack {
        name: "neighbours",
        attacker: "ARP replies and neighbour advertisements with another MAC address for the peer",
        bound: "with a permanent neighbour entry the connection goes on",
        run: kernel::neighbours,
    },
    Attack {
        name: "routed-redirects",
        attacker: "redirects to itself in the name of the router before the peer, over IPv4 and IPv6",
        bound: "with `accept_redirects` 0 connections go on",
        run: routed::redirects,
    },
    Attack {
        name: "routed-advertisements",
        attacker: "router advertisements of its own, preferred to the router before the peer",
        bound: "with `accept_ra` 0 connections go on",
        run: routed::advertisements,
    },
    Attack {
        name: "conntrack-unanswered",
        attacker: "datagrams of more flows than a firewall between victim and peer tracks",
        bound: "connections go on; a host connects",
        run: routed::unanswered_flows,
    },
    Attack {
        name: "conntrack-answered",
        attacker: "the same with answers of a host behind the firewall",
        bound: "with `notrack` for port 4791 every host connects and reads",
        run: routed::answered_flows,
    },
    Attack {
        name: "fence-late",
        attacker: "WRITE and Compare and Write whose data come after the right is gone, by 10 changes",
        bound: "nothing is written",
        run: fence::late_data,
    },
    Attack {
        name: "fence-busy",
        attacker: "two hosts that write while another one reserves the namespace",
        bound: "nothing is written after the reservation",
        run: fence::busy,
    },
    Attack {
        name: "nvme-killed-writer",
        attacker: "hosts that write to a disk and are killed meanwhile",
        bound: "another host's Compare and Write goes on; nothing stays in use",
        run: storage::killed_writers,
    },
    Attack {
        name: "nvme-fused-memory",
        attacker: "more Compare and Writes on a queue than its memory has buffers",
        bound: "the queue goes on; nothing stays in use",
        run: storage::memory_of_pairs,
    },
    Attack {
        name: "nvme-fused-race",
        attacker: "Write, Write Zeroes, Deallocate and Copy beside another host's Compare and Write",
        bound: "none comes between the comparison and the write",
        run: storage::changes_beside,
    },
    Attack {
        name: "agent-intruder",
        attacker: "another user who sends random messages to agent and devices, 200 connections at a time",
        bound: "a transfer goes on; further programs get their device",
        run: users::intruder,
    },
    Attack {
        name: "setuid-variables",
        attacker: "a user who starts a set-user-ID program with variables that name files of its owner",
        bound: "nothing is written to the files",
        run: users::set_user_id,
    },
    Attack {
        name: "web-slow",
        attacker: "another user whose connections to `rockery web` send half a request",
        bound: "its own user's requests are answered; the other user's are not",
        run: users::slow_pages,
    },
    Attack {
        name: "web-memory",
        attacker: "requests to `rockery web` for runs of 65,536 hosts",
        bound: "each is refused; the server has 64 MiB at most, and a small run is answered",
        run: users::large_runs,
    },
    Attack {
        name: "endless-inputs",
        attacker: "devices, FIFOs, folders and long files in place of inputs of commands",
        bound: "each command refuses its file by name",
        run: inputs::endless,
    },
    Attack {
        name: "names",
        attacker: "names in fabric files and snapshots that terminals or shells would obey",
        bound: "no control character is printed; fixes quote the names",
        run: inputs::names,
    },
    Attack {
        name: "lab-rings",
        attacker: "a program in a lab that writes over the rings it shares with the lab",
        bound: "programs of other hosts go on; nothing is left of the lab",
        run: labs::rings,
    },
    Attack {
        name: "lab-frames",
        attacker: "frames of all lengths and types from a host of a lab, in its own and in other names",
        bound: "programs of other hosts go on; its own too afterwards",
        run: labs::frames,
    },
    Attack {
        name: "shm-full",
        attacker: "other programs that fill `/dev/shm` and `/tmp`",
        bound: "programs of one machine, and a lab, transfer data",
        run: machine::full_memory_files,
    },
    Attack {
        name: "clock-jumps",
        attacker: "a wall clock that jumps by up to sixty years with each reading",
        bound: "a transfer goes on; a target serves a host with a secret",
        run: machine::clock_jumps,
    },
    Attack {
        name: "memory-kill",
        attacker: "SIGKILL of a program, the agent or both, as the kernel sends it without memory",
        bound: "the other end ends in time; further programs get their device",
        run: machine::kills,
    },
];

fn main() -> ExitCode {
    let (options, names): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|word| word.starts_with("--"));
    let known = ["--short", "--sanitized", "--markdown", "--list"];
    if let Some(unknown) = options.iter().find(|word| !known.contains(&word.as_str())) {
        eprintln!("attack: {unknown}: there are {}", known.join(", "));
        return ExitCode::from(2);
    }
    let effort = if options.iter().any(|word| word == "--short") {
        Effort::Short
    } else {
        Effort::Long
    };
    if options.iter().any(|word| word == "--sanitized") {
        place::expect_sanitized();
    }
    let markdown = options.iter().any(|word| word == "--markdown");
    let chosen =
        |attack: &&Attack| names.is_empty() || names.iter().any(|word| attack.name.contains(word));
    let attacks: Vec<&Attack> = ATTACKS.iter().filter(chosen).collect();
    if attacks.is_empty() {
        let known: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        eprintln!(
            "attack: no attack is called so; there are {}",
            known.join(", ")
        );
        return ExitCode::from(2);
    }
    if options.iter().any(|word| word == "--list") {
        attacks
            .iter()
            .for_each(|attack| println!("{}", attack.row()));
        return ExitCode::SUCCESS;
    }
    if markdown {
        println!(
            "| attack | what the attacker does | what the victim may lose | result |\n|---|---|---|---|"
        );
    }
    let mut all_held = true;
    for attack in attacks {
        let (held, result) = match (attack.run)(effort) {
            Ok(figures) => (true, figures),
            Err(loss) => (false, format!("BROKEN: {loss}")),
        };
        all_held &= held;
        if markdown {
            println!("{} {result} |", attack.row());
        } else {
            println!("{:<22} {result}", attack.name);
        }
    }
    if all_held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
