//! Rules of netfilter that drop RoCEv2 (UDP port 4791), as `iptables-save` and `nft list ruleset` print them.
//!
//! A packet of a device is followed through the rules of each chain in order. Interfaces, ports and the state
//! of the connection are evaluated. Rules with other conditions (sources, rates) may accept the packet; where
//! they name the port, they drop a part of the packets.

use std::collections::BTreeMap;

use crate::facts::{HostFacts, Interfaces, PortDrop};
use crate::sections::Section;
use crate::text::Line;

/// The UDP port of RoCEv2.
const PORT: u32 = 4791;

/// What a rule does with packets that it matches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Accept,
    Drop,
}

/// A rule that matches RoCEv2, or may.
struct Rule {
    verdict: Verdict,
    /// The interfaces that packets arrive on.
    on: Interfaces,
    /// Whether the rule names the port.
    names_port: bool,
    /// Whether the rule has conditions that are not evaluated.
    is_conditional: bool,
}

impl Rule {
    /// A rule without conditions, of which nothing has been read yet.
    fn new() -> Self {
        Self {
            verdict: Verdict::Accept,
            on: Interfaces::All,
            names_port: false,
            is_conditional: false,
        }
    }
}

/// A chain as far as it was read.
#[derive(Default)]
struct Chain {
    /// Whether packets to the host or from it enter the chain first.
    is_base: bool,
    /// Interfaces whose RoCEv2 earlier rules accept.
    accepted: Vec<Interfaces>,
    /// Whether an earlier rule may accept RoCEv2 of other interfaces.
    may_accept: bool,
}

impl Chain {
    /// What of RoCEv2 the rule drops, by the rules before.
    fn drops(&mut self, rule: Rule) -> Option<PortDrop> {
        match rule.verdict {
            Verdict::Accept => {
                match rule.is_conditional {
                    true => self.may_accept = true,
                    false => self.accepted.push(rule.on),
                }
                None
            }
            Verdict::Drop if rule.names_port => Some(PortDrop {
                is_partial: rule.is_conditional,
                ..self.drop_on(rule.on)
            }),
            // The end of a list of what is accepted.
            Verdict::Drop if self.is_base && !rule.is_conditional && !self.may_accept => {
                Some(self.drop_on(rule.on))
            }
            Verdict::Drop => None,
        }
    }

    /// A drop of all packets of interfaces that no rule before has accepted.
    fn drop_on(&self, on: Interfaces) -> PortDrop {
        PortDrop {
            on,
            accepted: self.accepted.clone(),
            is_partial: false,
        }
    }
}

/// Takes the rules that drop RoCEv2.
pub(super) fn firewall(section: &Section<'_>, host: &mut HostFacts) {
    host.firewall_seen = true;
    match section.program() {
        "nft" => nft(section, host),
        _ => iptables(section, host),
    }
}

fn push(section: &Section<'_>, line: &Line<'_>, dropped: PortDrop, host: &mut HostFacts) {
    host.dropped_4791.push(section.fact(line, dropped));
}

/// The names of interfaces in a condition: `eth0`, `eth0,eth1`, `eth*`.
fn interfaces(names: &str, is_not: bool) -> Interfaces {
    let names = names.split(',').map(|name| name.trim_matches(['"', ' ']));
    let names = names.map(str::to_owned).collect();
    match is_not {
        true => Interfaces::AllBut(names),
        false => Interfaces::Only(names),
    }
}

/// Whether a condition names the loopback alone, which carries no RoCE of other hosts.
fn is_loopback(on: &Interfaces) -> bool {
    matches!(on, Interfaces::Only(names) if names.iter().all(|name| name == "lo"))
}

/// Whether a port or a list of ports and ranges has that of RoCEv2: `4791`, `53,4000:5000`.
fn has_port(text: &str) -> bool {
    text.split(',').any(|part| {
        let part = part.trim();
        let (from, to) = part.split_once([':', '-']).unwrap_or((part, part));
        let range = from.parse::<u32>().ok().zip(to.parse::<u32>().ok());
        range.is_some_and(|(from, to)| (from..=to).contains(&PORT))
    })
}

fn iptables(section: &Section<'_>, host: &mut HostFacts) {
    let mut chains: BTreeMap<&str, Chain> = BTreeMap::new();
    // Policies that drop, until a rule is found that may accept.
    let mut policies: Vec<(&str, &Line<'_>)> = Vec::new();
    let mut has_chains_below = false;
    for line in &section.lines {
        let words = line.words();
        match words.as_slice() {
            [table] if table.starts_with('*') => chains.clear(),
            [chain, policy, ..] if chain.starts_with(':') => {
                let name = &chain[1..];
                chains.entry(name).or_default().is_base = is_base(name);
                if is_base(name) && matches!(*policy, "DROP" | "REJECT") {
                    policies.push((name, line));
                }
            }
            ["-P", chain, "DROP" | "REJECT"] => {
                chains.entry(chain).or_default().is_base = is_base(chain);
                if is_base(chain) {
                    policies.push((chain, line));
                }
            }
            // `iptables -S` names no policy that is ACCEPT in another way.
            ["-P" | "-N", chain, ..] => {
                chains.entry(chain).or_default().is_base = is_base(chain);
            }
            ["-A", chain, rest @ ..] if !matches!(*chain, "FORWARD" | "POSTROUTING") => {
                has_chains_below |= jumps(rest);
                let own = chains.entry(*chain).or_default();
                if let Some(dropped) = iptables_rule(rest).and_then(|rule| own.drops(rule)) {
                    push(section, line, dropped, host);
                }
            }
            _ => {}
        }
        policies.retain(|(name, _)| chains.get(name).is_none_or(|own| !own.may_accept));
    }
    // What chains of one's own accept is not followed.
    for (name, line) in policies.into_iter().filter(|_| !has_chains_below) {
        let dropped = chains.entry(name).or_default().drop_on(Interfaces::All);
        push(section, line, dropped, host);
    }
}

/// Whether packets to the host or from it enter a chain of iptables first.
fn is_base(chain: &str) -> bool {
    matches!(chain, "INPUT" | "OUTPUT" | "PREROUTING")
}

/// Whether a rule goes to another chain.
fn jumps(words: &[&str]) -> bool {
    let target = words
        .iter()
        .skip_while(|word| !matches!(**word, "-j" | "-g" | "--jump" | "--goto"))
        .nth(1);
    let own = [
        "ACCEPT", "DROP", "REJECT", "RETURN", "LOG", "NFLOG", "MARK", "TCPMSS",
    ];
    target.is_some_and(|target| !own.contains(target))
}

/// A rule of iptables, if it accepts or drops, and may match RoCEv2.
fn iptables_rule(words: &[&str]) -> Option<Rule> {
    let mut rule = Rule::new();
    let (mut verdict, mut is_not) = (None, false);
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        match word {
            "!" => {
                is_not = true;
                continue;
            }
            "-m" | "--match" | "--reject-with" => _ = words.next(),
            "--comment" => skip_quoted(&mut words),
            "-p" | "--protocol" => {
                let own = matches!(words.next()?, "udp" | "17" | "all" | "0");
                if own == is_not {
                    return None;
                }
            }
            "--dport" | "--dports" | "--destination-port" | "--destination-ports" => {
                if has_port(words.next()?) == is_not {
                    return None;
                }
                rule.names_port = !is_not;
            }
            "-i" | "--in-interface" => {
                // iptables has `+` for any end of a name.
                rule.on = interfaces(&words.next()?.replace('+', "*"), is_not);
                if is_loopback(&rule.on) {
                    return None;
                }
            }
            "-j" | "--jump" => {
                verdict = match words.next()? {
                    "ACCEPT" | "RETURN" => Some(Verdict::Accept),
                    "DROP" | "REJECT" => Some(Verdict::Drop),
                    _ => return None,
                }
            }
            "--ctstate" | "--state" => {
                // Packets of RoCE from another host belong to no connection that the kernel knows.
                if words.next()?.contains("NEW") == is_not {
                    return None;
                }
            }
            _ => {
                rule.is_conditional = true;
                words.next_if(|next| !next.starts_with('-') && *next != "!");
            }
        }
        is_not = false;
    }
    rule.verdict = verdict?;
    Some(rule)
}

/// Skips a text, which is within quotes where it has blanks.
fn skip_quoted<'a>(words: &mut impl Iterator<Item = &'a str>) {
    let Some(first) = words.next().filter(|first| first.starts_with('"')) else {
        return;
    };
    if first.len() > 1 && first.ends_with('"') {
        return;
    }
    words.find(|word| word.ends_with('"') && !word.ends_with("\\\""));
}

fn nft(section: &Section<'_>, host: &mut HostFacts) {
    let mut chain = Chain::default();
    let mut is_outside = true;
    let mut policy: Option<&Line<'_>> = None;
    let mut has_chains_below = false;
    let mut dropping: Vec<(&Line<'_>, PortDrop)> = Vec::new();
    for line in &section.lines {
        let words = nft_words(line.text);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["chain", ..] => {
                (chain, is_outside, has_chains_below) = (Chain::default(), false, false);
            }
            ["type", rest @ ..] => {
                let hook = rest.iter().skip_while(|word| **word != "hook").nth(1);
                let is_of_host = hook.is_some_and(|hook| {
                    matches!(*hook, "input" | "output" | "prerouting" | "ingress")
                });
                is_outside = hook.is_some() && !is_of_host;
                chain.is_base = is_of_host;
                policy = rest
                    .windows(2)
                    .any(|pair| pair == ["policy", "drop"])
                    .then_some(line)
                    .filter(|_| is_of_host);
            }
            ["}"] => {
                let is_dropping = !chain.may_accept && !has_chains_below;
                let by_policy = policy.take().filter(|_| is_dropping);
                dropping.extend(by_policy.map(|line| (line, chain.drop_on(Interfaces::All))));
                is_outside = true;
            }
            rest if !is_outside => {
                has_chains_below |= rest
                    .iter()
                    .any(|word| matches!(*word, "jump" | "goto" | "vmap"));
                if let Some(dropped) = nft_rule(rest).and_then(|rule| chain.drops(rule)) {
                    push(section, line, dropped, host);
                }
            }
            _ => {}
        }
    }
    dropping
        .into_iter()
        .for_each(|(line, dropped)| push(section, line, dropped, host));
}

/// The words of a line of nft: a set in braces is one word, and so is a text in quotes.
fn nft_words(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let (mut is_open, mut is_quoted, mut in_set) = (false, false, false);
    for letter in text.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '{' if !is_quoted => in_set = true,
            '}' if !is_quoted && in_set => in_set = false,
            ';' if !is_quoted && !in_set => {
                is_open = false;
                continue;
            }
            letter if letter.is_whitespace() && !is_quoted && !in_set => {
                is_open = false;
                continue;
            }
            _ => {}
        }
        if !is_open {
            found.push(String::new());
            is_open = true;
        }
        found
            .last_mut()
            .into_iter()
            .for_each(|word| word.push(letter));
    }
    found
}

/// The value of a condition of nft, and whether it is negated: `!= lo`, or `{ 53, 4791 }`.
fn nft_value<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<(bool, String)> {
    let first = words.next()?;
    let is_not = first == "!=";
    let value = match first {
        "!=" | "==" => words.next()?,
        first => first,
    };
    let value = value.trim_matches(['{', '}', '"', ' ']);
    Some((is_not, value.to_owned()))
}

/// A rule of nft, if it accepts or drops, and may match RoCEv2.
fn nft_rule(words: &[&str]) -> Option<Rule> {
    let mut rule = Rule::new();
    let mut verdict = None;
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        match word {
            "accept" | "return" => verdict = Some(Verdict::Accept),
            "drop" | "reject" => {
                verdict = Some(Verdict::Drop);
                break;
            }
            "jump" | "goto" | "vmap" | "tcp" | "icmp" | "icmpv6" | "sctp" | "igmp" => return None,
            "comment" => _ = words.next(),
            "counter" => {
                let is_count = |next: &&str| {
                    matches!(*next, "packets" | "bytes") || next.parse::<u64>().is_ok()
                };
                while words.next_if(is_count).is_some() {}
            }
            "meta" | "ct" | "log" | "prefix" | "level" => {}
            word => {
                if !nft_matches(word, &mut words, &mut rule)? {
                    return None;
                }
            }
        }
    }
    rule.verdict = verdict?;
    Some(rule)
}

/// Takes a condition of nft; whether RoCEv2 may meet it. None where it has no value.
fn nft_matches<'a>(
    word: &str,
    words: &mut impl Iterator<Item = &'a str>,
    rule: &mut Rule,
) -> Option<bool> {
    match word {
        "udp" | "th" => {
            let (_, field) = nft_value(words)?;
            let (is_not, ports) = nft_value(words)?;
            if field != "dport" {
                rule.is_conditional = true;
                return Some(true);
            }
            rule.names_port = !is_not;
            Some(has_port(&ports) != is_not)
        }
        "l4proto" | "protocol" => {
            let (is_not, names) = nft_value(words)?;
            let is_udp = |name: &str| matches!(name.trim(), "udp" | "17");
            Some(names.split(',').any(is_udp) != is_not)
        }
        "iifname" | "iif" => {
            let (is_not, name) = nft_value(words)?;
            rule.on = interfaces(&name, is_not);
            Some(!is_loopback(&rule.on))
        }
        "state" => {
            let (is_not, states) = nft_value(words)?;
            Some(states.contains("new") != is_not)
        }
        _ => {
            rule.is_conditional = true;
            Some(true)
        }
    }
}
