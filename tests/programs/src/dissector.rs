//! Wireshark's dissector, which others wrote: what is in a capture, and what passes an interface.

use std::path::Path;

use crate::machine::until;
use crate::namespace::Process;
use crate::{Error, Job, Namespace, system};

/// How long it may take to begin.
const READY_SECONDS: u64 = 60;

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

/// Prints the same of what passes the namespace's `eth0` from now on. `filter` is one for captures
/// (`pcap-filter`).
///
/// # Errors
/// When tshark does not begin.
pub fn watch(namespace: &Namespace, filter: &str, fields: &[&str]) -> Result<Process, Error> {
    let mut argv = vec!["tshark", "-l", "-n", "-i", "eth0", "-f", filter, "-T", "fields"];
    fields.iter().for_each(|field| argv.extend(["-e", field]));
    let mut watch = namespace.start_plain(&argv)?;
    if !until(READY_SECONDS, || Ok(watch.output()?.contains("Capturing on")))? {
        let (what, output) = ("tshark's capture".to_owned(), watch.output()?);
        return Err(Error::TooLate { what, seconds: READY_SECONDS, output });
    }
    Ok(watch)
}
