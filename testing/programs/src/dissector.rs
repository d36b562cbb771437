//! Wireshark's dissector (tshark), as an independent reader of captures and of an interface's packets.

use std::path::Path;

use crate::machine::{Machine, until};
use crate::namespace::Process;
use crate::{Error, Job, Namespace, system};

/// How long tshark may take until it captures.
const READY_SECONDS: u64 = 60;

/// The message that tshark logs when dumpcap has opened the interface and its file. "Capturing on" comes
/// earlier, before the interface is open: on a loaded machine a connection was over before the first packet
/// could be captured.
const STARTED: &str = "Capture started";

/// Fields of the packets in a capture that pass a filter, a line for each, parts separated by tabs.
///
/// # Errors
/// When tshark is not there, or does not know a field.
pub fn read(capture: &Path, filter: &str, fields: &[&str]) -> Result<Vec<String>, Error> {
    let capture = capture.to_string_lossy();
    let mut argv = vec!["tshark", "-r", &capture, "-Y", filter, "-T", "fields"];
    fields.iter().for_each(|field| argv.extend(["-e", field]));
    Ok(system::call(&argv)?.lines().map(str::to_owned).collect())
}

/// The same fields, of a capture that is there.
///
/// # Panics
/// When tshark is not there, or does not know a field.
#[track_caller]
pub fn fields(capture: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    read(capture, filter, fields).expect("tshark")
}

/// Prints the same fields of the packets on the namespace's `eth0` from now on. `filter` is one for captures
/// (`pcap-filter`).
///
/// # Errors
/// When tshark does not begin.
pub fn watch(namespace: &Namespace, filter: &str, fields: &[&str]) -> Result<Process, Error> {
    let mut argv = vec![
        "tshark", "-l", "-n", "-i", "eth0", "-f", filter, "-T", "fields",
    ];
    fields.iter().for_each(|field| argv.extend(["-e", field]));
    segment(namespace)?;
    let mut watch = namespace.start_plain(&argv)?;
    if !until(READY_SECONDS, || Ok(watch.output()?.contains(STARTED)))? {
        let (what, output) = ("tshark's capture".to_owned(), watch.output()?);
        return Err(Error::TooLate {
            what,
            seconds: READY_SECONDS,
            output,
        });
    }
    Ok(watch)
}

/// Writes the packets on the namespace's `eth0` from now on to a file.
///
/// # Errors
/// When tshark does not begin.
pub fn record(namespace: &Namespace, filter: &str, file: &Path) -> Result<Process, Error> {
    segment(namespace)?;
    let file = file.to_string_lossy();
    let argv = [
        "tshark", "-q", "-n", "-i", "eth0", "-f", filter, "-w", &file,
    ];
    let mut tshark = namespace.start_plain(&argv)?;
    if !until(READY_SECONDS, || Ok(tshark.output()?.contains(STARTED)))? {
        let (what, output) = ("tshark's capture".to_owned(), tshark.output()?);
        return Err(Error::TooLate {
            what,
            seconds: READY_SECONDS,
            output,
        });
    }
    Ok(tshark)
}

/// Makes the kernel cut datagrams that it has to segment before they are captured: one that holds several
/// packets would be read as one malformed packet.
fn segment(namespace: &Namespace) -> Result<(), Error> {
    let name = namespace.name();
    let argv = [
        "ip",
        "-n",
        name,
        "link",
        "set",
        "dev",
        "eth0",
        "gso_max_segs",
        "1",
    ];
    system::call(&argv).map(drop)
}

/// Ends a recording, so that its file is complete.
///
/// # Errors
/// When tshark does not end.
pub fn stop(tshark: &mut Process) -> Result<(), Error> {
    system::call(&["kill", "-INT", &tshark.id().to_string()])?;
    tshark.wait(READY_SECONDS).map(drop)
}
