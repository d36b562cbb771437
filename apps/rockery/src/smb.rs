//! `rockery smb`: gateways between SMB Direct and SMB over TCP.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ::smb::serve::{
    DialConfig, Dialer, GatewayConfig, Listener, Report, ServeError, Shared, serve_metrics,
};
use clap::Subcommand;
use server::control::{Control, Query};

use crate::log::Log;
use crate::sys::allow_descriptors;
use crate::{Error, control, output, run};

/// The port of SMB, over TCP and over RoCE and InfiniBand.
const PORT: u16 = 445;

/// The commands of `rockery smb`, by the side that uses SMB Direct.
#[derive(Debug, Subcommand)]
pub(crate) enum Smb {
    /// Accept SMB Direct clients, and forward them to an SMB server over TCP, such as Samba.
    #[command(after_help = GATEWAY_EXAMPLES)]
    Gateway(GatewayArgs),
    /// Accept SMB clients over TCP, and forward them to an SMB Direct server.
    #[command(after_help = DIAL_EXAMPLES)]
    Dial(DialArgs),
}

const GATEWAY_EXAMPLES: &str = "\
Examples:
  Samba on this host, for clients that mount with rdma:
    server# rockery smb gateway --rdma 192.0.2.1:445 --server 127.0.0.1:445
    client# mount -t cifs -o rdma,username=USER //192.0.2.1/SHARE /mnt

  What it does:
    rockery top";

const DIAL_EXAMPLES: &str = "\
Examples:
  Programs that speak SMB over TCP only, to an SMB Direct server:
    rockery smb dial --listen 127.0.0.1:1445 --server 192.0.2.1
    smbclient -p 1445 //127.0.0.1/SHARE
    mount -t cifs -o port=1445,username=USER //127.0.0.1/SHARE /mnt";

/// An SMB Direct server in front of an SMB server over TCP.
#[derive(Debug, clap::Args)]
pub(crate) struct GatewayArgs {
    /// IP address and port to listen on for SMB Direct, on rockery's devices unless --system-verbs is given.
    /// May be repeated.
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "config")]
    #[arg(value_parser = link::address::socket)]
    rdma: Vec<SocketAddr>,
    /// Host and port of the SMB server; the port is 445 if not given.
    #[arg(long, value_name = "HOST[:PORT]", required_unless_present = "config")]
    server: Option<String>,
    /// Configuration file (TOML) with rdma, server and metrics in place of these options.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rdma", "server", "metrics"])]
    config: Option<PathBuf>,
    /// Options of both directions.
    #[command(flatten)]
    common: Common,
}

/// An SMB server over TCP in front of an SMB Direct server.
#[derive(Debug, clap::Args)]
pub(crate) struct DialArgs {
    /// IP address and port to listen on for SMB over TCP. May be repeated.
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "config")]
    #[arg(value_parser = link::address::socket)]
    listen: Vec<SocketAddr>,
    /// Host and port of the SMB Direct server; the port is 445 if not given.
    #[arg(long, value_name = "HOST[:PORT]", required_unless_present = "config")]
    server: Option<String>,
    /// Configuration file (TOML) with listen, server and metrics in place of these options.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "server", "metrics"])]
    config: Option<PathBuf>,
    /// Options of both directions.
    #[command(flatten)]
    common: Common,
}

/// Options of both directions.
#[derive(Debug, clap::Args)]
struct Common {
    /// Use the distribution's libibverbs and librdmacm, for hardware adapters.
    #[arg(long)]
    system_verbs: bool,
    /// IP address and port of an HTTP server for Prometheus (/metrics).
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = link::address::socket)]
    metrics: Option<SocketAddr>,
    /// Path of the control socket for `rockery top` and `rockery serve metrics`; `none` for no socket.
    /// Default: rockery/smb-gateway-ADDRESS-PORT.sock or rockery/smb-dial-ADDRESS-PORT.sock in
    /// XDG_RUNTIME_DIR, or in rockery-UID in /tmp, with the first address that is listened on.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Level and format of the log.
    #[command(flatten)]
    log: Log,
}

/// Runs a gateway or a dial.
pub(crate) fn act(what: Smb) -> Result<(), Error> {
    let common = match &what {
        Smb::Gateway(args) => &args.common,
        Smb::Dial(args) => &args.common,
    };
    if !common.system_verbs {
        return run::over_our_devices();
    }
    common.log.begin();
    allow_descriptors();
    match what {
        Smb::Gateway(args) => gateway(args),
        Smb::Dial(args) => dial(args),
    }
}

fn gateway(args: GatewayArgs) -> Result<(), Error> {
    let config = match (&args.config, args.server) {
        (Some(path), _) => GatewayConfig::read(path).map_err(ServeError::from)?,
        (None, server) => {
            let (server, metrics) = (server.unwrap_or_default(), args.common.metrics);
            GatewayConfig {
                rdma: args.rdma,
                server,
                metrics,
            }
        }
    };
    let (shared, server) = (Shared::new(), resolve(&config.server)?);
    let mut listeners = Vec::new();
    for address in config.rdma {
        let listener = Listener::new(&shared, address, server)?;
        listeners.push((address, move || listener.run()));
    }
    let first = listeners.first().map(|(address, _)| *address);
    observe(
        &shared,
        "gateway",
        first,
        &args.common.control,
        config.metrics,
    )?;
    run_all(listeners)
}

fn dial(args: DialArgs) -> Result<(), Error> {
    let config = match (&args.config, args.server) {
        (Some(path), _) => DialConfig::read(path).map_err(ServeError::from)?,
        (None, server) => {
            let (server, metrics) = (server.unwrap_or_default(), args.common.metrics);
            DialConfig {
                listen: args.listen,
                server,
                metrics,
            }
        }
    };
    let (shared, server) = (Shared::new(), resolve(&config.server)?);
    let mut dialers = Vec::new();
    for address in config.listen {
        let dialer = Dialer::new(&shared, address, server)?;
        dialers.push((dialer.address(), move || dialer.run()));
    }
    let first = dialers.first().map(|(address, _)| *address);
    observe(&shared, "dial", first, &args.common.control, config.metrics)?;
    run_all(dialers)
}

/// Serves reports on the control socket, and metrics.
fn observe(
    shared: &Arc<Shared>,
    role: &'static str,
    address: Option<SocketAddr>,
    control: &Option<PathBuf>,
    metrics: Option<SocketAddr>,
) -> Result<(), Error> {
    if let Some(address) = metrics {
        let address = serve_metrics(shared, role, address)?;
        output::announce(format_args!("metrics at http://{address}/metrics\n"));
    }
    let path = match (control, address) {
        (Some(path), _) if path.as_os_str() == "none" => return Ok(()),
        (Some(path), _) => path.clone(),
        (None, Some(address)) => control::of_smb(role, address)?,
        (None, None) => return Ok(()),
    };
    let control = Control::listen(&path).map_err(|source| match source.kind() {
        ErrorKind::AddrInUse => Error::ControlTaken(path.clone()),
        _ => Error::File {
            path: path.clone(),
            source,
        },
    })?;
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("control".to_owned());
    let serve = move || {
        control.serve(move |query| match query {
            Query::Status | Query::Report => {
                serde_json::to_value(Report::of(&shared, role)).map_err(|error| error.to_string())
            }
            Query::Other => Err(format!("this is an SMB {role}, and not an NVMe target")),
        })
    };
    thread
        .spawn(serve)
        .map(drop)
        .map_err(|source| ServeError::Thread(source).into())
}

/// Announces each listener in a line that a script can read, and runs it in a thread of its own.
fn run_all<F: FnOnce() + Send + 'static>(listeners: Vec<(SocketAddr, F)>) -> Result<(), Error> {
    let mut threads = Vec::new();
    for (address, run) in listeners {
        let thread = std::thread::Builder::new().name("smb-listen".to_owned());
        threads.push(thread.spawn(run).map_err(ServeError::Thread)?);
        output::announce(format_args!("listening on {address}\n"));
    }
    for thread in threads {
        _ = thread.join();
    }
    Ok(())
}

/// The address of a host, with the port of SMB if none is given.
fn resolve(server: &str) -> Result<SocketAddr, Error> {
    link::address::host(server, Some(PORT)).map_err(Error::Address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_server_is_445_if_not_given() {
        for (text, address) in [
            ("192.0.2.1", "192.0.2.1:445"),
            ("192.0.2.1:1445", "192.0.2.1:1445"),
            ("2001:db8::1", "[2001:db8::1]:445"),
            ("[2001:db8::1]", "[2001:db8::1]:445"),
            ("[2001:db8::1]:1445", "[2001:db8::1]:1445"),
        ] {
            assert_eq!(resolve(text).unwrap(), address.parse().unwrap());
        }
        assert!(resolve("two words").is_err());
    }
}
