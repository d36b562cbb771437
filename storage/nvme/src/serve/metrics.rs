//! Metrics of a target over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use server::metrics;

use super::{Report, ServeError, Shared};

/// Serves the metrics of a target at an address as long as the process lives; returns the address, with the
/// assigned port if port 0 was given.
///
/// # Errors
/// When the address cannot be bound, or no thread can be started.
pub fn serve_metrics(shared: &Arc<Shared>, address: SocketAddr) -> Result<SocketAddr, ServeError> {
    let listening =
        metrics::bind(address).map_err(|source| ServeError::Listen { address, source })?;
    let (address, shared) = (listening.address(), Arc::clone(shared));
    let text = move || Report::of(&shared).to_prometheus();
    metrics::start(listening, text).map_err(ServeError::Thread)?;
    Ok(address)
}
