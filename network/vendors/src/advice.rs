//! Settings of a vendor that cause an observed fault, and what replaces them.

/// A class of traffic at a port of a switch that is lossy, though its data should not be lost.
#[derive(Clone, Copy, Debug)]
pub struct LossyClass<'a> {
    /// The port's name.
    pub port: &'a str,
    /// The class that the switch puts data into.
    pub class: u8,
    /// The DSCP of the data.
    pub dscp: u8,
    /// Classes that are lossless at this port, one bit each.
    pub lossless: u8,
}

/// A setting that causes an observed fault, and its replacement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// The setting, in the vendor's terms.
    pub cause: String,
    /// The vendor's command or table that changes it.
    pub instead: String,
}

/// Classes of a mask as people list them: `3, 4`.
pub fn class_list(mask: u8) -> String {
    let classes = (0..8)
        .filter(|class| mask >> class & 1 == 1)
        .map(|class| format!("{class}"));
    let text = classes.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "none".into() } else { text }
}
