//! What `rockery run` tells the library: environment variables, so that they reach what a program starts.

use rnic::{Config, CongestionConfig, DcqcnConfig};
use std::path::PathBuf;

/// The devices that there are, by name, interface or address, separated by commas. Not set: all.
pub const DEVICES: &str = "ROCKERY_DEVICES";
/// The file that packets are written to.
pub const CAPTURE: &str = "ROCKERY_PCAP";
/// `1`: WRITEs and READ responses are placed in whatever order they arrive.
pub const OUT_OF_ORDER: &str = "ROCKERY_OUT_OF_ORDER";
/// How senders react to congestion: `window` (the default), `dcqcn` or `off`.
pub const CONGESTION: &str = "ROCKERY_CONGESTION";
/// `0`: a WRITE of several packets begins with a WRITE FIRST, as IBTA has it, and not with a WRITE ONLY.
pub const WRITE_ONLY: &str = "ROCKERY_WRITE_ONLY";

/// `0`: each packet is sent by a call of its own, without UDP segmentation offload.
pub const SEGMENTATION: &str = "ROCKERY_SEGMENTATION";

/// `0`: peers on the same host are reached by packets, as peers elsewhere are.
pub const SAME_HOST: &str = "ROCKERY_SAME_HOST";

/// How long peers may take to answer who asks for a connection, each of 16 times: 4.096 µs times 2 to this
/// power, 0 to 24. Not set: 20 (4.3 s), as Linux has it.
pub const CM_RESPONSE_TIMEOUT: &str = "ROCKERY_CM_RESPONSE_TIMEOUT";

/// The time code that the environment names, if it is one.
pub(crate) fn cm_response_timeout() -> Option<u8> {
    let code = std::env::var(CM_RESPONSE_TIMEOUT).ok()?.parse().ok()?;
    (code <= rnic::cm::TIMEOUT_CODE_MAX).then_some(code)
}

/// Whether peers on the same host are reached through memory. Whoever asks for a capture wants to see
/// packets.
pub(crate) fn same_host() -> bool {
    std::env::var(SAME_HOST).unwrap_or_default() != "0" && capture().is_none()
}

/// Whether many packets may be sent with one call.
pub(crate) fn segmentation() -> bool {
    std::env::var(SEGMENTATION).unwrap_or_default() != "0"
}

/// Which devices are wanted; `None` for all.
pub(crate) fn devices() -> Option<Vec<String>> {
    let wanted = std::env::var(DEVICES).ok()?;
    Some(wanted.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Where packets are to be written.
pub(crate) fn capture() -> Option<PathBuf> {
    std::env::var_os(CAPTURE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Applies the variables to a device's configuration. What a variable says that is none of its values counts
/// as if it were not set: `rockery run` has checked it.
pub(crate) fn apply(config: &mut Config) {
    let variable = |name| std::env::var(name).unwrap_or_default();
    config.out_of_order = variable(OUT_OF_ORDER) == "1";
    config.write_only = variable(WRITE_ONLY) != "0";
    match variable(CONGESTION).as_str() {
        "dcqcn" => config.congestion = CongestionConfig::Dcqcn(DcqcnConfig::default()),
        "off" => config.congestion = CongestionConfig::Off,
        _ => {}
    }
}
