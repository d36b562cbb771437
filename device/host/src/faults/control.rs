//! Changes of rules while the program runs: an abstract Unix socket of each library, which `rockery fault`
//! connects to. A request is one message; the answer is one message for each line, up to the end.

use super::{apply_in_time, live};
use crate::log::HOST;
use crate::settings;
use crate::sys::{fork, process};
use ::faults::{Point, Rule};
use link::unix;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Libraries of one process that meet faults: libibverbs and librdmacm.
pub const LIBRARIES: u32 = 2;
/// Limit of a message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Time that the other end may take for its request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many may wait to be served.
const BACKLOG: i32 = 16;

/// The name of the socket of a library: the first of a process, or the second.
pub fn socket_name(pid: u32, library: u32) -> String {
    format!("rockery-faults-{pid}-{library}")
}

/// Serves requests from now on, once in each process.
pub(super) fn serve() {
    static SERVED: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    if SERVED.swap(pid, Ordering::Relaxed) == pid {
        return;
    }
    let free = |library| match unix::listen(&socket_name(pid, library), BACKLOG) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
        listener => Some(listener),
    };
    let listener = (0..LIBRARIES).find_map(free);
    let started = listener
        .unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))
        .and_then(|listener| process::spawn_quiet("rockery-faults", move || run(&listener)));
    if let Err(error) = started {
        tracing::warn!(target: HOST, "rules of faults cannot be changed: {error}");
    }
}

fn run(listener: &OwnedFd) {
    loop {
        let Ok(connection) = unix::accept(listener.as_raw_fd()) else {
            // Without descriptors: others may be closed meanwhile.
            std::thread::sleep(TIMEOUT);
            continue;
        };
        // An error means that the other end is gone, or is another user's.
        let _ = answer(connection.as_raw_fd());
    }
}

/// Answers one request, of this user or of root.
fn answer(connection: RawFd) -> io::Result<()> {
    let user = unix::peer_user(connection)?;
    if user != os::user() && user != 0 {
        return unix::send(connection, b"refused the process is another user's", None);
    }
    unix::set_timeouts(connection, TIMEOUT)?;
    let mut message = [0; MESSAGE_BYTES_MAX];
    let length = unix::receive_next(connection, &mut message)?;
    let request = String::from_utf8_lossy(message.get(..length).unwrap_or_default());
    for line in lines(&request) {
        unix::send(connection, line.as_bytes(), None)?;
    }
    Ok(())
}

/// The lines of an answer. Each begins with a word that says what it is.
fn lines(request: &str) -> Vec<String> {
    let (verb, rest) = request.split_once(' ').unwrap_or((request, ""));
    let done = match verb {
        "list" => return list(),
        "add" => add(rest).map(|number| format!("added {number}")),
        "remove" => rest
            .parse()
            .map_err(|_| format!("`{rest}` is no number of a rule"))
            .and_then(remove),
        "clear" => {
            change(|plan| plan.clear());
            Ok("cleared".to_owned())
        }
        _ => Err(format!(
            "`{verb}` is no request: use the same version of rockery"
        )),
    };
    vec![done.unwrap_or_else(|error| format!("refused {error}"))]
}

/// `rule NUMBER MATCHED DONE TEXT` for each rule.
fn list() -> Vec<String> {
    let _inside = fork::enter();
    let rules = live().map(|live| live.plan().list());
    let line = |one: ::faults::RuleStatus| {
        format!(
            "rule {} {} {} {}",
            one.number, one.matched, one.done, one.rule
        )
    };
    rules.into_iter().flatten().map(line).collect()
}

/// Changes the rules, and announces what they could apply to now.
fn change<T>(how: impl FnOnce(&mut ::faults::Plan) -> T) -> Option<T> {
    let _inside = fork::enter();
    let live = live()?;
    let mut plan = live.plan();
    let result = how(&mut plan);
    live.announce(&plan);
    Some(result)
}

fn add(text: &str) -> Result<u32, String> {
    let rule: Rule = text
        .parse()
        .map_err(|error: ::faults::RuleError| error.to_string())?;
    if rule.needs_packets() && settings::same_host() {
        let remedy =
            "start the program with --no-same-host, since programs on one host use no packets";
        return Err(format!("`{rule}`: {remedy}"));
    }
    let point = rule.point();
    let number = change(|plan| plan.add(rule))
        .ok_or("the process keeps no fault rules: start it by `rockery run --fault`")?;
    if point == Point::Time {
        apply_in_time(number);
    }
    Ok(number)
}

fn remove(number: u32) -> Result<String, String> {
    match change(|plan| plan.remove(number)) {
        Some(true) => Ok(format!("removed {number}")),
        _ => Err(format!(
            "there is no rule {number}: `rockery fault list` shows all"
        )),
    }
}
